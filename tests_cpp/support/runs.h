// Runs of a program in several ways, for tests that compare their bits.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/streams.h"

namespace popsr::test {

/// Data of all streams after a run with these options.
inline std::vector<std::vector<float>> bits_of(const Program& program, SessionOptions options) {
  options.seed_rules = program.seeds;
  Session session(borrow(program), options);
  Streams streams(program.ir);
  session.run(streams.buffers, {});
  return {streams.data.begin(), streams.data.end()};
}

/// Executed ops of that name in a run.
inline std::uint64_t calls_of(const Program& program, const std::string& op, SessionOptions options = {}) {
  options.seed_rules = program.seeds;
  Session session(borrow(program), options);
  Streams streams(program.ir);
  session.run(streams.buffers, {});
  const auto calls = session.stats().kernel_calls;
  const auto found = calls.find(op);
  return found == calls.end() ? 0 : found->second;
}

/// Checks that runs with rewrites, threads and checks, and without sharing, give the bits of a plain run.
inline void check_bits(const Program& program) {
  const auto bits = [&program](SessionOptions options) {
    options.seed = 5;
    return bits_of(program, options);
  };
  const auto expected = bits({.num_threads = 1, .optimise = false});
  CHECK(bits({}) == expected);
  CHECK(bits({.num_threads = 2}) == expected);
  CHECK(bits({.dedup = false}) == expected);
  CHECK(bits({.check = 1}) == expected);
  CHECK(bits({.check = 0.5}) == expected);
}

}  // namespace popsr::test
