// Operands that tests of kernels share.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

/// `count` numbers from low to high: one at a random place of each of as many equal steps.
template <class T>
std::vector<T> dense(double low, double high, int count) {
  std::vector<T> out;
  std::mt19937_64 random(9);
  const double step = (high - low) / count;
  for (int i = 0; i < count; ++i) {
    out.push_back(static_cast<T>(low + step * (i + static_cast<double>(random() >> 11) * 0x1p-53)));
  }
  return out;
}

/// Random bits: finite numbers of all binades, subnormals included.
template <class T>
std::vector<T> all_binades(int count, std::uint64_t seed = 10) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::vector<T> out;
  std::mt19937_64 random(seed);
  while (static_cast<int>(out.size()) < count) {
    const T x = __builtin_bit_cast(T, static_cast<Bits>(random()));
    if (std::isfinite(x)) out.push_back(x);
  }
  return out;
}

/// Their magnitudes.
template <class T>
std::vector<T> positive_binades(int count) {
  std::vector<T> out = all_binades<T>(count);
  for (T& x : out) x = std::fabs(x);
  return out;
}
