#include "popsr/fields/products.h"

#include <algorithm>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace popsr::fields {
namespace {

// Halves of residues: a product of two takes 60 bits, so a word holds sums of 16.
constexpr int kHalf = kMaxBits / 2;
constexpr Residue kLowHalf = (Residue{1} << kHalf) - 1;
constexpr std::size_t kRows = 4;       // Rows of a tile.
constexpr std::size_t kColumns = 8;    // Columns of a tile.
constexpr std::size_t kTogether = 8;   // Places along k whose products of halves are summed in words.
constexpr std::size_t kLargest = 128;  // Products of residues whose sum is below 2 ** 127.

static_assert(2 * kTogether * (kLowHalf * kLowHalf >> 32) < Residue{1} << 32);

/// Returns how many blocks of a size hold so many elements.
std::size_t blocks(std::size_t elements, std::size_t size) { return (elements + size - 1) / size; }

/// Packs lines of k residues by blocks of `width` lines: for each place along k low halves, then high ones.
/// Zeros fill up.
void pack(const Lines& lines, std::size_t count, std::size_t k, std::size_t width, std::vector<Residue>& to) {
  Residue* at = to.data();
  for (std::size_t first = 0; first < count; first += width) {
    const std::size_t here = std::min(width, count - first);
    const Residue* from = lines.at + static_cast<std::ptrdiff_t>(first) * lines.line;
    for (std::size_t l = 0; l < k; ++l, at += 2 * width, from += lines.step) {
      for (std::size_t i = 0; i < here; ++i) {
        const Residue value = from[static_cast<std::ptrdiff_t>(i) * lines.line];
        at[i] = value & kLowHalf;
        at[width + i] = value >> kHalf;
      }
      std::fill(at + here, at + width, 0);
      std::fill(at + width + here, at + 2 * width, 0);
    }
  }
}

/// Copies a line to contiguous memory.
void copy(const Lines& lines, std::size_t line, std::size_t k, Residue* to) {
  const Residue* from = lines.at + static_cast<std::ptrdiff_t>(line) * lines.line;
  for (std::size_t l = 0; l < k; ++l, from += lines.step) to[l] = *from;
}

/// Sums of products of low halves, of low with high ones, and of high ones: of low and high words of those.
struct Sums {
  Residue low[3][kColumns], high[3][kColumns];

  Wide total(std::size_t column) const {
    const auto sum = [&](int part) {
      return (static_cast<Wide>(high[part][column]) << 32) + low[part][column];
    };
    return sum(0) + (sum(1) << kHalf) + (sum(2) << (2 * kHalf));
  }
};

#if defined(__x86_64__)
bool has_vectors() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

/// Products of the low words of elements. (GCC warns of the intrinsic without a mask.)
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i product(__m512i a, __m512i b) {
  return _mm512_maskz_mul_epu32(0xff, a, b);
}

/// Sums for a tile of packed rows and columns.
[[gnu::target("avx512f")]] void tile(const Residue* rows, const Residue* columns, std::size_t k, Sums* out) {
  const __m512i word = _mm512_set1_epi64(0xffffffff);
  __m512i low[kRows][3], high[kRows][3];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int part = 0; part < 3; ++part) low[r][part] = high[r][part] = _mm512_setzero_si512();
  }
  for (std::size_t l = 0; l < k;) {
    const std::size_t end = std::min(k, l + kTogether);
    __m512i sum[kRows][3];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int part = 0; part < 3; ++part) sum[r][part] = _mm512_setzero_si512();
    }
    for (; l < end; ++l, rows += 2 * kRows, columns += 2 * kColumns) {
      const __m512i b0 = _mm512_loadu_si512(columns), b1 = _mm512_loadu_si512(columns + kColumns);
#pragma GCC unroll 4
      for (std::size_t r = 0; r < kRows; ++r) {
        const __m512i a0 = _mm512_set1_epi64(static_cast<long long>(rows[r]));
        const __m512i a1 = _mm512_set1_epi64(static_cast<long long>(rows[kRows + r]));
        sum[r][0] = _mm512_add_epi64(sum[r][0], product(a0, b0));
        sum[r][1] = _mm512_add_epi64(sum[r][1], product(a0, b1));
        sum[r][1] = _mm512_add_epi64(sum[r][1], product(a1, b0));
        sum[r][2] = _mm512_add_epi64(sum[r][2], product(a1, b1));
      }
    }
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int part = 0; part < 3; ++part) {
        low[r][part] = _mm512_add_epi64(low[r][part], _mm512_and_si512(sum[r][part], word));
        high[r][part] = _mm512_add_epi64(high[r][part], _mm512_maskz_srli_epi64(0xff, sum[r][part], 32));
      }
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (int part = 0; part < 3; ++part) {
      _mm512_storeu_si512(out[r].low[part], low[r][part]);
      _mm512_storeu_si512(out[r].high[part], high[r][part]);
    }
  }
}
#else
bool has_vectors() { return false; }
void tile(const Residue*, const Residue*, std::size_t, Sums*) {}
#endif

}  // namespace

Multiplier::Multiplier(const ProductShape& shape, Way way)
    : shape_(shape),
      turned_(shape.n < shape.m && shape.n < kColumns),
      vectors_(way == Way::kBest && shape.k >= kTogether && has_vectors()) {
  if (turned_) std::swap(shape_.m, shape_.n);
  const std::size_t rows = blocks(shape_.m, kRows) * kRows, columns = blocks(shape_.n, kColumns) * kColumns;
  vectors_ = vectors_ && rows * columns <= 2 * shape_.m * shape_.n;
  if (!vectors_) {
    shape_ = shape;
    rows_.resize(shape.k);
    columns_.resize(shape.k * shape.n);
    return;
  }
  rows_.resize(rows * 2 * shape_.k);
  columns_.resize(columns * 2 * shape_.k);
}

void Multiplier::operator()(const Field& field, const Lines& a, const Lines& b, Residue* out) {
  vectors_ ? by_vectors(field, a, b, out) : by_words(field, a, b, out);
}

void Multiplier::by_words(const Field& field, const Lines& a, const Lines& b, Residue* out) {
  const auto [batch, m, k, n] = shape_;
  for (std::size_t j = 0; j < n; ++j) copy(b, j, k, columns_.data() + j * k);
  for (std::size_t i = 0; i < m; ++i) {
    copy(a, i, k, rows_.data());
    for (std::size_t j = 0; j < n; ++j) {
      const Residue *const row = rows_.data(), *const column = columns_.data() + j * k;
      Wide sum = 0;
      for (std::size_t l = 0; l < k;) {
        const std::size_t end = std::min(k, l + kLargest);
        Wide more[2] = {};  // Two sums, so that one need not wait for the other.
        for (; l + 2 <= end; l += 2) {
          more[0] += static_cast<Wide>(row[l]) * column[l];
          more[1] += static_cast<Wide>(row[l + 1]) * column[l + 1];
        }
        if (l < end) more[0] += static_cast<Wide>(row[l]) * column[l], ++l;
        sum = field.folded(sum + field.folded(more[0]) + field.folded(more[1]));
      }
      out[i * n + j] = field.restore(field.reduce(sum));
    }
  }
}

void Multiplier::by_vectors(const Field& field, const Lines& a, const Lines& b, Residue* out) {
  const auto [batch, m, k, n] = shape_;  // As they are packed: turned, rows are columns of b.
  pack(turned_ ? b : a, m, k, kRows, rows_);
  pack(turned_ ? a : b, n, k, kColumns, columns_);
  const std::size_t row_stride = turned_ ? 1 : n, column_stride = turned_ ? m : 1;
  for (std::size_t j = 0; j < n; j += kColumns) {
    for (std::size_t i = 0; i < m; i += kRows) {
      Wide totals[kRows][kColumns];
      for (std::size_t l = 0; l < k; l += kLargest) {
        Sums sums[kRows];
        tile(rows_.data() + 2 * (i * k + l * kRows), columns_.data() + 2 * (j * k + l * kColumns),
             std::min(kLargest, k - l), sums);
        for (std::size_t r = 0; r < kRows; ++r) {
          for (std::size_t c = 0; c < kColumns; ++c) {
            const Wide sum = field.folded(sums[r].total(c));
            totals[r][c] = l == 0 ? sum : field.folded(totals[r][c] + sum);
          }
        }
      }
      for (std::size_t r = 0; r < std::min(kRows, m - i); ++r) {
        for (std::size_t c = 0; c < std::min(kColumns, n - j); ++c) {
          out[(i + r) * row_stride + (j + c) * column_stride] = field.restore(field.reduce(totals[r][c]));
        }
      }
    }
  }
}

}  // namespace popsr::fields
