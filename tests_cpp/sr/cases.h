// Calls of the kernels of stochastic rounding for tests: inputs that reach the corners, and what must come
// out.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"
#include "popsr/kernels/loader.h"
#include "sr/oracle.h"

namespace sr_cases {

using namespace popsr::kernels;
using popsr::FloatFormat;
using popsr::size_of;

inline constexpr FloatFormat kFormats[] = {FloatFormat::kF64,      FloatFormat::kF32,     FloatFormat::kF16,
                                           FloatFormat::kBf16,     FloatFormat::kE4m3fn,  FloatFormat::kE5m2,
                                           FloatFormat::kE4m3fnuz, FloatFormat::kE5m2fnuz};

inline std::vector<SrRounding> modes() {
  std::vector<SrRounding> all;
  const auto add = [&](SrMode mode, int bits) {
    all.emplace_back();
    all.back().mode = mode;
    all.back().bits = bits;
  };
  for (const SrMode mode :
       {SrMode::kProportional, SrMode::kEqual, SrMode::kNearest, SrMode::kUp, SrMode::kDown, SrMode::kZero}) {
    add(mode, 0);
  }
  for (const int bits : {1, 7, 32}) add(SrMode::kBits, bits);
  return all;
}

/// One call; bits of operands and results are widened to 64.
struct Case {
  SrOp op = SrOp::kAdd;
  SrRounding rounding;
  FloatFormat formats[3] = {};
  std::vector<std::uint64_t> in[3];
  double scalar = 1.0;
  std::vector<std::uint64_t> uniform;  ///< Empty: drawn.
  std::size_t n() const { return in[0].size(); }
};

inline int operands_of(SrOp op) {
  if (op == SrOp::kCast) return 1;
  return op == SrOp::kAdd || op == SrOp::kSub || op == SrOp::kMul || op == SrOp::kAxpy ? 2 : 3;
}

// Inputs

/// Zeros, subnormals, binade ends, the largest, infinities, NaN: codes next to every corner, both signs.
inline std::vector<std::uint64_t> corners(FloatFormat format) {
  const sr_oracle::Format f = sr_oracle::format_of(format);
  const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
  const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
  const std::uint64_t one = hidden * static_cast<std::uint64_t>(1 - f.least_exponent);
  std::vector<std::uint64_t> codes;
  for (const std::uint64_t code :
       {std::uint64_t{0}, hidden, one, f.max_code, f.max_code - hidden, one + hidden / 2}) {
    for (const int step : {-1, 0, 1}) codes.push_back(code + static_cast<std::uint64_t>(step));
  }
  std::vector<std::uint64_t> bits;
  for (const std::uint64_t code : codes) {
    bits.push_back(code & (sign - 1));
    bits.push_back((code & (sign - 1)) | sign);
  }
  return bits;
}

inline std::uint64_t random_bits(std::mt19937_64& random, FloatFormat format) {
  const sr_oracle::Format f = sr_oracle::format_of(format);
  const std::uint64_t all = f.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << f.bits) - 1;
  if (random() % 4 == 0) {
    const std::vector<std::uint64_t> some = corners(format);
    return some[random() % some.size()];
  }
  // Few significant bits, so that exact results and ties are common.
  const std::uint64_t low = random() % 3 == 0
                                ? ~((std::uint64_t{1} << (random() % static_cast<unsigned>(f.precision))) - 1)
                                : ~std::uint64_t{0};
  return random() & all & low;
}

inline Case random_case(std::mt19937_64& random, SrOp op, FloatFormat to, FloatFormat from, std::size_t n) {
  Case test;
  test.op = op;
  test.rounding.format = to;
  test.rounding.key = {random(), random()};
  test.rounding.first = random() % 1000;
  for (int operand = 0; operand < operands_of(op); ++operand) {
    test.formats[operand] = operand == 0 ? to : from;
    if (op == SrOp::kCast) test.formats[operand] = from;
    for (std::size_t i = 0; i < n; ++i)
      test.in[operand].push_back(random_bits(random, test.formats[operand]));
  }
  return test;
}

/// The exponents come close to each other, so that results are finite and inexact.
inline void keep_near_one(std::mt19937_64& random, Case& test) {
  for (int operand = 0; operand < 3; ++operand) {
    const sr_oracle::Format f = sr_oracle::format_of(test.formats[operand]);
    const std::uint64_t hidden = std::uint64_t{1} << (f.precision - 1);
    const std::uint64_t sign = std::uint64_t{1} << (f.bits - 1);
    for (std::uint64_t& bits : test.in[operand]) {
      const int spread = std::min(-f.least_exponent, 40);
      const std::uint64_t field = static_cast<std::uint64_t>(1 - f.least_exponent - spread / 2) +
                                  random() % static_cast<unsigned>(spread);
      bits = (bits & sign) | field * hidden | (random() & (hidden - 1));
    }
  }
}

inline Case all_pairs_of_corners(SrOp op, FloatFormat format) {
  Case test;
  test.op = op;
  test.rounding.format = format;
  test.formats[0] = test.formats[1] = format;
  const std::vector<std::uint64_t> some = corners(format);
  for (const std::uint64_t x : some) {
    for (const std::uint64_t y : some) {
      test.in[0].push_back(x);
      test.in[1].push_back(y);
    }
  }
  return test;
}

// Expectations

inline std::vector<std::uint64_t> drawn(const Case& test) {
  if (!test.uniform.empty()) return test.uniform;
  std::vector<std::uint64_t> u(test.n());
  kernel_table().uniform_bits(u.data(), static_cast<std::int64_t>(u.size()), test.rounding.key,
                              test.rounding.first);
  return u;
}

inline sr_oracle::Number exact_result(const Case& test, std::size_t i) {
  double in[3] = {0.0, 0.0, test.op == SrOp::kLerp ? test.scalar : 0.0};
  for (int operand = 0; operand < 3; ++operand) {
    if (!test.in[operand].empty())
      in[operand] = sr_oracle::decode(test.formats[operand], test.in[operand][i]);
  }
  return sr_oracle::evaluate(test.op, in, test.scalar);
}

inline std::vector<std::uint64_t> expected(const Case& test) {
  const std::vector<std::uint64_t> u = drawn(test);
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < test.n(); ++i)
    out.push_back(sr_oracle::round(exact_result(test, i), test.rounding, u[i]));
  return out;
}

/// U = p 2^64 - 1, p 2^64 and p 2^64 + 1, cut.
inline void draw_at_the_chance(std::mt19937_64& random, Case& test) {
  const sr_oracle::Format f = sr_oracle::format_of(test.rounding.format);
  for (std::size_t i = 0; i < test.n(); ++i) {
    const sr_oracle::Number s = exact_result(test, i);
    const bool ordinary = !s.is_special() && !s.is_zero();
    test.uniform.push_back((ordinary ? sr_oracle::bracket(s, f).p64 : random()) + random() % 3 - 1);
  }
}

// Runs

inline std::vector<unsigned char> packed(const std::vector<std::uint64_t>& bits, FloatFormat format) {
  const auto size = static_cast<std::size_t>(size_of(format));
  std::vector<unsigned char> bytes(bits.size() * size + 64);
  for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(bytes.data() + i * size, &bits[i], size);
  return bytes;
}
inline std::vector<std::uint64_t> unpacked(const unsigned char* bytes, std::size_t n, FloatFormat format) {
  const auto size = static_cast<std::size_t>(size_of(format));
  std::vector<std::uint64_t> bits(n);
  for (std::size_t i = 0; i < n; ++i) std::memcpy(&bits[i], bytes + i * size, size);
  return bits;
}

/// The buffers of a case and the call on them.
struct Buffers {
  std::vector<unsigned char> in[3];
  std::vector<unsigned char> out;
  SrCall call;

  explicit Buffers(const Case& test) {
    call.op = test.op;
    call.rounding = test.rounding;
    call.scalar = test.scalar;
    call.n = static_cast<std::int64_t>(test.n());
    if (!test.uniform.empty()) call.rounding.uniform = test.uniform.data();
    for (int operand = 0; operand < 3; ++operand) {
      if (test.in[operand].empty()) continue;
      in[operand] = packed(test.in[operand], test.formats[operand]);
      call.in[operand] = in[operand].data();
      call.formats[operand] = test.formats[operand];
    }
    out.assign(test.n() * 8 + 192, 0xcd);
    call.out = out.data();
  }
};

inline std::vector<std::uint64_t> run(const KernelTable& table, const Case& test, bool tiles) {
  Buffers buffers(test);
  (tiles ? table.sr_apply_tiles : table.sr_apply)(buffers.call);
  const std::size_t written = test.n() * static_cast<std::size_t>(size_of(test.rounding.format));
  CHECK(buffers.out[written] == 0xcd);
  return unpacked(buffers.out.data(), test.n(), test.rounding.format);
}

inline std::vector<std::uint64_t> run_split(const KernelTable& table, const Case& test, std::int64_t cut) {
  Buffers buffers(test);
  SrCall call = buffers.call;
  call.n = cut;
  table.sr_apply(call);
  call.n = buffers.call.n - cut;
  call.rounding.first += static_cast<std::uint64_t>(cut);
  call.out = static_cast<unsigned char*>(call.out) + cut * size_of(call.rounding.format);
  for (int operand = 0; operand < 3; ++operand) {
    if (call.in[operand] == nullptr) continue;
    call.in[operand] =
        static_cast<const unsigned char*>(call.in[operand]) + cut * size_of(call.formats[operand]);
  }
  table.sr_apply(call);
  return unpacked(buffers.out.data(), test.n(), test.rounding.format);
}

/// Into the buffer of an operand, which has the result's format.
inline std::vector<std::uint64_t> run_in_place(const KernelTable& table, const Case& test, int operand) {
  Buffers buffers(test);
  buffers.call.out = buffers.in[operand].data();
  table.sr_apply(buffers.call);
  return unpacked(buffers.in[operand].data(), test.n(), test.rounding.format);
}

/// Around the caches, `shift` elements behind the start of a buffer.
inline std::vector<std::uint64_t> run_streamed(const KernelTable& table, const Case& test, int shift) {
  Buffers buffers(test);
  unsigned char* out = buffers.out.data() + shift * size_of(test.rounding.format);
  buffers.call.out = out;
  buffers.call.stream = true;
  table.sr_apply(buffers.call);
  return unpacked(out, test.n(), test.rounding.format);
}

/// Every level, and the tiles as well as what sr_apply chooses.
inline void check_everywhere(const Case& test) {
  const std::vector<std::uint64_t> expect = expected(test);
  const std::vector<std::uint64_t> u = drawn(test);
  for (const std::string& level : available_levels()) {
    for (const bool tiles : {false, true}) {
      const std::vector<std::uint64_t> got = run(kernel_table(level), test, tiles);
      for (std::size_t i = 0; i < expect.size(); ++i) {
        if (got[i] == expect[i]) continue;
        const auto bits = [&](int operand) { return test.in[operand].empty() ? 0 : test.in[operand][i]; };
        INFO(level, " tiles=", tiles, " op=", static_cast<int>(test.op),
             " to=", static_cast<int>(test.rounding.format), " mode=", static_cast<int>(test.rounding.mode),
             " bits=", test.rounding.bits, " from=", static_cast<int>(test.formats[1]),
             " saturate=", test.rounding.saturate, " scalar=", test.scalar, " x=", bits(0), " y=", bits(1),
             " z=", bits(2), " u=", u[i]);
        REQUIRE(got[i] == expect[i]);
      }
    }
  }
}

}  // namespace sr_cases
