// Runs a program in several ways, which must give the same bits, and compares what replicas really hold with
// what the analysis claims that they share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "fuzz/programs/random_program.h"
#include "popsr/ir/ir.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::test {

struct BitOptions {
  std::uint64_t seed = 0;                         ///< Seed of host data and of random numbers.
  int runs = 2;                                   ///< Between them the host writes variables.
  const kernels::KernelTable* kernels = nullptr;  ///< One more way: with these.
  SeedRules seed_rules = {};                      ///< Rules of the program's ops.
};

struct BitVerdict {
  std::string failure;      ///< Empty while all is well.
  std::string program;      ///< Text of the program, if it failed.
  bool refused = false;     ///< True if mode "popart" refused it: then it rounds to nearest.
  bool too_large = false;   ///< Its streams move more in a run than is judged: calls and loops multiply.
  bool grown = true;        ///< False when the generator threw.
  std::int64_t values = 0;  ///< Stored values and variables after a run whose bits were compared.
  std::int64_t pairs = 0;   ///< Pairs of replicas that were claimed to hold the same of these, and do.
  std::int64_t sessions = 0;
  bool stopped = false;  ///< A run ended with an error, the same in all sessions.
};

/// The program without sharing and on one thread is what the others must equal: with sharing, on several
/// threads, with every claim checked, on other instruction-set levels (v2 only without products).
BitVerdict judge_bits(const std::shared_ptr<const Ir>& ir, const BitOptions& options);
BitVerdict judge_bits(const Recipe& recipe, const std::shared_ptr<const Registry>& registry,
                      const BitOptions& options);

}  // namespace popsr::test
