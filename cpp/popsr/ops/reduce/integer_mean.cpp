#include "popsr/ops/reduce/integer_mean.h"

namespace popsr {
namespace {

__extension__ using Int128 = __int128;

/// Largest number of 32-bit elements whose sum fits 64 bits.
constexpr std::int64_t kNarrowCount = std::int64_t{1} << 31;

template <class T, class Sum>
void add(void* sums, const std::byte* from, std::int64_t n, std::int64_t length, std::int64_t step) {
  Sum* const sum = static_cast<Sum*>(sums);
  const T* const x = reinterpret_cast<const T*>(from);
  if (length == 1 && step == 1) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<Sum>(x[i]);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    Sum total = 0;
    for (std::int64_t k = 0; k < length; ++k) total += static_cast<Sum>(x[i * step + k]);
    sum[i] += total;
  }
}

template <class T, class Sum>
void store(std::byte* to, const void* sums, std::int64_t n, std::int64_t count) {
  T* const mean = reinterpret_cast<T*>(to);
  const Sum* const sum = static_cast<const Sum*>(sums);
  for (std::int64_t i = 0; i < n; ++i) {
    mean[i] = count == 0 ? T{0} : static_cast<T>(sum[i] / static_cast<Sum>(count));
  }
}

}  // namespace

template <class T, class Sum>
void IntegerMean::set() {
  add_ = popsr::add<T, Sum>;
  store_ = popsr::store<T, Sum>;
  sum_size_ = sizeof(Sum);
}

IntegerMean::IntegerMean(DType dtype, std::int64_t count) : count_(count) { choose(dtype); }

void IntegerMean::choose(DType dtype) {
  const bool narrow = count_ <= kNarrowCount;
  switch (dtype) {
    case DType::kInt8:
      return set<std::int8_t, std::int64_t>();
    case DType::kInt16:
      return set<std::int16_t, std::int64_t>();
    case DType::kInt32:
      return narrow ? set<std::int32_t, std::int64_t>() : set<std::int32_t, Int128>();
    case DType::kInt64:
      return set<std::int64_t, Int128>();
    case DType::kUInt8:
      return set<std::uint8_t, std::int64_t>();
    case DType::kUInt16:
      return set<std::uint16_t, std::int64_t>();
    case DType::kUInt32:
      return narrow ? set<std::uint32_t, std::int64_t>() : set<std::uint32_t, Int128>();
    case DType::kUInt64:
      return set<std::uint64_t, Int128>();
    default:
      return;
  }
}

}  // namespace popsr
