#include "popsr/ops/loops/tiles.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace popsr {

using kernels::Compute;
using kernels::KernelTable;
using kernels::NoiseKey;

namespace {

/// Dtype of each compute type.
constexpr std::array<DType, kernels::kNumComputes> kComputeDTypes = {
    DType::kFloat32, DType::kFloat64, DType::kInt8,   DType::kInt16,  DType::kInt32, DType::kInt64,
    DType::kUInt8,   DType::kUInt16,  DType::kUInt32, DType::kUInt64, DType::kBool};
/// Compute type of each dtype.
constexpr auto kComputes = [] {
  std::array<Compute, kNumDTypes> computes = {};
  for (const DTypeInfo& row : kDTypes) {
    const auto* const found = std::ranges::find(kComputeDTypes, row.compute);
    computes[static_cast<std::size_t>(row.dtype)] = static_cast<Compute>(found - kComputeDTypes.begin());
  }
  return computes;
}();
std::size_t index(Compute compute) { return static_cast<std::size_t>(compute); }

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

void narrow(const KernelTable& kernels, DType dtype, std::byte* dst, const float* hi, const float* lo,
            std::int64_t n, const NoiseKey* key, std::uint64_t first) {
  if (key == nullptr) return kernels.narrow(format_of(dtype), dst, hi, lo, n);
  kernels::SrCall call;
  call.op = lo == nullptr ? kernels::SrOp::kCast : kernels::SrOp::kAdd;
  call.residual = true;
  call.rounding.format = format_of(dtype);
  call.rounding.key = *key;
  call.rounding.first = first;
  call.out = dst;
  call.in[0] = hi;
  call.in[1] = lo;
  call.formats[0] = call.formats[1] = FloatFormat::kF32;
  call.n = n;
  kernels.sr_apply(call);
}

/// hi + lo = a piece of at most kTile elements of a compute type other than float.
void split(const KernelTable& kernels, Compute compute, float* hi, float* lo, const std::byte* src,
           std::int64_t n) {
  alignas(64) std::array<std::uint64_t, kTile> wide;
  if (compute == Compute::kF64) return kernels.split_f64(hi, lo, reinterpret_cast<const double*>(src), n);
  const bool is_unsigned = compute >= Compute::kU8;
  const Compute to = is_unsigned ? Compute::kU64 : Compute::kI64;
  const void* from = src;
  if (compute != to) {
    kernels.cast[index(compute)][index(to)](wide.data(), src, n);
    from = wide.data();
  }
  is_unsigned ? kernels.split_u64(hi, lo, static_cast<const std::uint64_t*>(from), n)
              : kernels.split_i64(hi, lo, static_cast<const std::int64_t*>(from), n);
}

}  // namespace

Compute compute_of(DType dtype) { return kComputes[static_cast<std::size_t>(dtype)]; }

std::size_t size_of(Compute compute) { return size_of(kComputeDTypes[index(compute)]); }

void load_tile(const KernelTable& kernels, DType dtype, Compute compute, void* dst, const std::byte* src,
               std::int64_t n) {
  if (n == 0) return;  // dst and src may be null
  if (!is_narrow_float(dtype)) {
    const Compute from = compute_of(dtype);
    if (from != compute) return kernels.cast[index(from)][index(compute)](dst, src, n);
    std::memcpy(dst, src, static_cast<std::size_t>(n) * size_of(dtype));
    return;
  }
  if (compute == Compute::kF32) return kernels.widen(format_of(dtype), static_cast<float*>(dst), src, n);
  alignas(64) std::array<float, kTile> wide;
  for (std::int64_t i = 0; i < n; i += kTile) {
    const std::int64_t count = std::min(kTile, n - i);
    kernels.widen(format_of(dtype), wide.data(), src + i * bytes_of(dtype), count);
    std::byte* to = static_cast<std::byte*>(dst) + i * static_cast<std::int64_t>(size_of(compute));
    kernels.cast[index(Compute::kF32)][index(compute)](to, wide.data(), count);
  }
}

void store_tile(const KernelTable& kernels, Compute compute, DType dtype, std::byte* dst, const void* hi,
                const float* lo, std::int64_t n, const NoiseKey* key, std::uint64_t first) {
  if (n == 0) return;
  if (!is_narrow_float(dtype)) {
    const Compute to = compute_of(dtype);
    if (to != compute) return kernels.cast[index(compute)][index(to)](dst, hi, n);
    if (dst != hi) std::memcpy(dst, hi, static_cast<std::size_t>(n) * size_of(dtype));
    return;
  }
  if (compute == Compute::kF32) {
    return narrow(kernels, dtype, dst, static_cast<const float*>(hi), lo, n, key, first);
  }
  alignas(64) std::array<float, kTile> high;
  alignas(64) std::array<float, kTile> low;
  for (std::int64_t i = 0; i < n; i += kTile) {
    const std::int64_t count = std::min(kTile, n - i);
    const std::byte* from =
        static_cast<const std::byte*>(hi) + i * static_cast<std::int64_t>(size_of(compute));
    split(kernels, compute, high.data(), low.data(), from, count);
    narrow(kernels, dtype, dst + i * bytes_of(dtype), high.data(), low.data(), count, key,
           first + static_cast<std::uint64_t>(i));
  }
}

double read_scalar(const KernelTable& kernels, DType dtype, const std::byte* src) {
  double value = 0;
  load_tile(kernels, dtype, Compute::kF64, &value, src, 1);
  return value;
}

}  // namespace popsr
