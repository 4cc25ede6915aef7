#include "popsr/ops/loops/tiles.h"

#include <array>
#include <cstring>

#include "popsr/base/error.h"

namespace popsr {

using kernels::Compute;
using kernels::KernelTable;
using kernels::NoiseKey;

namespace {

constexpr std::array<std::size_t, kernels::kNumComputes> kComputeSize = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
std::size_t index(Compute compute) { return static_cast<std::size_t>(compute); }

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

void widen(const KernelTable& kernels, DType dtype, float* dst, const std::byte* src, std::int64_t n) {
  const auto* words = reinterpret_cast<const std::uint16_t*>(src);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(src);
  switch (dtype) {
    case DType::kFloat16:
      return kernels.widen_f16(dst, words, n);
    case DType::kBFloat16:
      return kernels.widen_bf16(dst, words, n);
    case DType::kFloat8_143:
      return kernels.widen_f8_143(dst, bytes, n);
    case DType::kFloat8_152:
      return kernels.widen_f8_152(dst, bytes, n);
    default:
      raise<InternalError>("tiles: no narrow float, got {}", info(dtype).name);
  }
}

void narrow_to_nearest(const KernelTable& kernels, DType dtype, std::byte* dst, const float* hi,
                       const float* lo, std::int64_t n) {
  auto* words = reinterpret_cast<std::uint16_t*>(dst);
  auto* bytes = reinterpret_cast<std::uint8_t*>(dst);
  switch (dtype) {
    case DType::kFloat16:
      return kernels.narrow_f16(words, hi, lo, n);
    case DType::kBFloat16:
      return kernels.narrow_bf16(words, hi, lo, n);
    case DType::kFloat8_143:
      return kernels.narrow_f8_143(bytes, hi, lo, n);
    case DType::kFloat8_152:
      return kernels.narrow_f8_152(bytes, hi, lo, n);
    default:
      raise<InternalError>("tiles: no narrow float, got {}", info(dtype).name);
  }
}

/// hi + lo to float8, stochastically: the general kernel adds exactly.
void narrow_sr_f8(const KernelTable& kernels, DType dtype, std::byte* dst, const float* hi, const float* lo,
                  std::int64_t n, const NoiseKey& key, std::uint64_t first) {
  using kernels::SrFormat;
  kernels::SrCall call;
  call.op = lo == nullptr ? kernels::SrOp::kCast : kernels::SrOp::kAdd;
  call.rounding.format = dtype == DType::kFloat8_143 ? SrFormat::kE4m3fnuz : SrFormat::kE5m2fnuz;
  call.rounding.key = key;
  call.rounding.first = first;
  call.out = dst;
  call.in[0] = hi;
  call.in[1] = lo;
  call.formats[0] = call.formats[1] = SrFormat::kF32;
  call.n = n;
  kernels.sr_apply(call);
}

void narrow(const KernelTable& kernels, DType dtype, std::byte* dst, const float* hi, const float* lo,
            std::int64_t n, const NoiseKey* key, std::uint64_t first) {
  if (key == nullptr) return narrow_to_nearest(kernels, dtype, dst, hi, lo, n);
  auto* words = reinterpret_cast<std::uint16_t*>(dst);
  switch (dtype) {
    case DType::kFloat16:
      return kernels.narrow_sr_f16(words, hi, lo, n, *key, first);
    case DType::kBFloat16:
      return kernels.narrow_sr_bf16(words, hi, lo, n, *key, first);
    default:
      return narrow_sr_f8(kernels, dtype, dst, hi, lo, n, *key, first);
  }
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

Compute compute_of(DType dtype) {
  constexpr std::array<Compute, kNumDTypes> kComputes = {
      Compute::kBool, Compute::kI8,  Compute::kI16, Compute::kI32, Compute::kI64,
      Compute::kU8,   Compute::kU16, Compute::kU32, Compute::kU64, Compute::kF32,
      Compute::kF32,  Compute::kF32, Compute::kF64, Compute::kF32, Compute::kF32};
  return kComputes[static_cast<std::size_t>(dtype)];
}

std::size_t size_of(Compute compute) { return kComputeSize[index(compute)]; }

void load_tile(const KernelTable& kernels, DType dtype, Compute compute, void* dst, const std::byte* src,
               std::int64_t n) {
  if (!is_narrow_float(dtype)) {
    const Compute from = compute_of(dtype);
    if (from != compute) return kernels.cast[index(from)][index(compute)](dst, src, n);
    std::memcpy(dst, src, static_cast<std::size_t>(n) * size_of(dtype));
    return;
  }
  if (compute == Compute::kF32) return widen(kernels, dtype, static_cast<float*>(dst), src, n);
  alignas(64) std::array<float, kTile> wide;
  for (std::int64_t i = 0; i < n; i += kTile) {
    const std::int64_t count = std::min(kTile, n - i);
    widen(kernels, dtype, wide.data(), src + i * bytes_of(dtype), count);
    std::byte* to = static_cast<std::byte*>(dst) + i * static_cast<std::int64_t>(size_of(compute));
    kernels.cast[index(Compute::kF32)][index(compute)](to, wide.data(), count);
  }
}

void store_tile(const KernelTable& kernels, Compute compute, DType dtype, std::byte* dst, const void* hi,
                const float* lo, std::int64_t n, const NoiseKey* key, std::uint64_t first) {
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
