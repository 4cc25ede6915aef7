// Columns are reduced row by row, some rows at a time, so that results stay in registers in between.
#include "popsr/kernels/level/reduce/column_sums.h"

#include "popsr/kernels/level/math/extremes-inl.h"
#include "popsr/kernels/level/simd/lanes-inl.h"

namespace popsr::kernels {
namespace {

inline constexpr std::int64_t kTogether = 4;

struct Plus {
  template <class T>
  [[gnu::always_inline]] static T apply(T a, T b) {
    return a + b;
  }
};

template <class Step, class T, class Stored>
[[gnu::always_inline]] inline void some_rows(T* acc, const Stored* x, std::int64_t rows, std::int64_t n,
                                             std::int64_t row_stride) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < n; ++c) {
    T value = acc[c];
    for (std::int64_t r = 0; r < rows; ++r) value = Step::apply(value, load_one(x + r * row_stride + c));
    acc[c] = value;
  }
}

template <class Step, class T, class Stored = T>
void reduce_columns(void* acc, const void* in, std::int64_t rows, std::int64_t n, std::int64_t row_stride) {
  const auto* x = static_cast<const Stored*>(in);
  std::int64_t r = 0;
  for (; r + kTogether <= rows; r += kTogether)
    some_rows<Step>(static_cast<T*>(acc), x + r * row_stride, kTogether, n, row_stride);
  for (; r < rows; ++r) some_rows<Step>(static_cast<T*>(acc), x + r * row_stride, 1, n, row_stride);
}

#if defined(__AVX512F__)
template <class Step, class T, bool kLargest>
void extreme_columns(void* acc, const void* in, std::int64_t rows, std::int64_t n, std::int64_t row_stride) {
  using Vector = typename NativeVector<T>::type;
  constexpr std::int64_t kPerVector = kVectorBytes / static_cast<int>(sizeof(T));
  T* to = static_cast<T*>(acc);
  const T* x = static_cast<const T*>(in);
  const std::int64_t whole = n - n % kPerVector;
  for (; rows >= kTogether; rows -= kTogether, x += kTogether * row_stride) {
    for (std::int64_t c = 0; c < whole; c += kPerVector) {
      Vector v[kTogether + 1];
      load_row_vector<T>(v[kTogether], to + c);
      for (std::int64_t r = 0; r < kTogether; ++r) load_row_vector<T>(v[r], x + r * row_stride + c);
      if (or_nan(or_nan(or_nan(0, v[0], v[1]), v[2], v[3]), v[4], v[4]) != 0) {
        some_rows<Step>(to + c, x + c, kTogether, kPerVector, row_stride);
        continue;
      }
      v[0] = extreme<kLargest>(extreme<kLargest>(v[0], v[1]), extreme<kLargest>(v[2], v[3]));
      v[0] = extreme<kLargest>(v[0], v[kTogether]);
      __builtin_memcpy(to + c, &v[0], sizeof(v[0]));
    }
    some_rows<Step>(to + whole, x + whole, kTogether, n - whole, row_stride);
  }
  reduce_columns<Step, T>(acc, x, rows, n, row_stride);
}
#else
template <class Step, class T, bool>
void extreme_columns(void* acc, const void* in, std::int64_t rows, std::int64_t n, std::int64_t row_stride) {
  reduce_columns<Step, T>(acc, in, rows, n, row_stride);
}
#endif

template <std::int32_t kRows, class T, bool kLargest>
[[gnu::always_inline]] inline void arg_rows(T* best, std::int32_t* index, const T* x, std::int64_t n,
                                            std::int64_t row_stride, std::int32_t first) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < n; ++c) {
    T extreme = best[c];
    std::int32_t at = index[c];
#pragma GCC unroll 4
    for (std::int32_t r = 0; r < kRows; ++r) {
      const T value = x[r * row_stride + c];
      const T taken = (kLargest ? value <= extreme : value >= extreme) ? extreme : value;
      const std::int32_t row = (kLargest ? value <= extreme : value >= extreme) ? at : first + r;
      at = extreme != extreme ? at : row;
      extreme = extreme != extreme ? extreme : taken;
    }
    best[c] = extreme;
    index[c] = at;
  }
}

template <class T, bool kLargest>
void arg_columns(void* best, std::int32_t* index, const void* in, std::int64_t rows, std::int64_t n,
                 std::int64_t row_stride, std::int32_t first) {
  T* extremes = static_cast<T*>(best);
  const T* x = static_cast<const T*>(in);
  constexpr auto kRows = static_cast<std::int32_t>(kTogether);
  for (; rows >= kTogether; rows -= kTogether, x += kTogether * row_stride, first += kRows)
    arg_rows<kRows, T, kLargest>(extremes, index, x, n, row_stride, first);
  for (; rows > 0; --rows, x += row_stride, ++first)
    arg_rows<1, T, kLargest>(extremes, index, x, n, row_stride, first);
}

template <class T>
constexpr ColumnKernels kernels_of_type() {
  return {reduce_columns<Plus, T>, extreme_columns<Maximum, T, true>, extreme_columns<Minimum, T, false>,
          arg_columns<T, true>, arg_columns<T, false>};
}

}  // namespace

constexpr ColumnKernels kColumnsF32 = kernels_of_type<float>();
constexpr ColumnKernels kColumnsF64 = kernels_of_type<double>();
constexpr ColumnKernels kColumnsBf16 = {reduce_columns<Plus, float, std::uint16_t>, nullptr, nullptr, nullptr,
                                        nullptr};

}  // namespace popsr::kernels
