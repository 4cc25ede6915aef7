// Products of bytes, tile by tile.
//
// Operands are packed as a' = a + shift in 0..255 and b' = b + shift in -128..127, with zero points moved
// alike, so that for each element
//   sum (a - a0)(b - b0) = sum a'b'  -  a0' sum b'  -  b0' (sum a' - k a0').
// The second term is the same for all rows of a column and the third needs the sum of a row alone: both are
// where the chain of a tile starts.
#include "popsr/kernels/level/product/integer_matmul.h"

#include "popsr/kernels/level/product/integer_vec-inl.h"
#include "popsr/kernels/level/product/matmul_plan-inl.h"

namespace popsr::kernels {
namespace {

using X = Integers;
using Left = X::Left;
using Right = X::Right;

constexpr std::int64_t kWidth = X::kVecs * X::kLanes;  ///< Columns of a panel.
/// Steps of a panel, which then stays in a first-level cache, and bytes of packed rows. Decide speed only.
constexpr std::int64_t kPanelSteps = 512, kRowBytes = std::int64_t{1} << 18;

constexpr std::int64_t padded_steps(std::int64_t k) { return ceil_div(k, X::kGroup) * X::kGroup; }

std::int64_t row_bytes(std::int64_t k) { return padded_steps(k) * static_cast<std::int64_t>(sizeof(Left)); }
/// Rows that are packed at a time.
std::int64_t block_rows(const IntegerMatmulArgs& args) {
  const std::int64_t fits = kRowBytes / at_least(row_bytes(args.k), 1) / X::kRows * X::kRows;
  return at_most(args.m, at_least(fits, 4 * X::kRows));
}

struct IntegerTile {
  const Left* row;
  std::int64_t row_pitch;
  const Right* panel;
  std::int64_t groups;
  const std::uint32_t* start;    ///< First sum of each column.
  const std::uint32_t* zero;     ///< Zero point of each column, times the row's factor; null: none.
  const std::uint32_t* factors;  ///< Factor of each row.
  std::uint32_t* c;
  std::int64_t c_row;
  bool resume;  ///< True to add to the contents of c.
};

template <int Rows>
void integer_micro(const IntegerTile& tile) {
  using V = X::V;
  V sum[Rows][X::kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int q = 0; q < X::kVecs; ++q) {
      sum[r][q] = X::load(tile.start + q * X::kLanes);
      if (tile.zero != nullptr) {
        sum[r][q] = sum[r][q] - X::load(tile.zero + q * X::kLanes) * X::splat(tile.factors[r]);
      }
      if (tile.resume) sum[r][q] = sum[r][q] + X::load(tile.c + r * tile.c_row + q * X::kLanes);
    }
  const Left* row = tile.row;
  const Right* panel = tile.panel;
  const std::int64_t pitch = tile.row_pitch;
  for (std::int64_t g = tile.groups; g > 0; --g) {
    V right[X::kVecs];
#pragma GCC unroll 4
    for (int q = 0; q < X::kVecs; ++q) right[q] = X::load(panel + q * X::kLanes * X::kGroup);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const V left = X::group(row + r * pitch);
#pragma GCC unroll 4
      for (int q = 0; q < X::kVecs; ++q) sum[r][q] = X::add_products(sum[r][q], left, right[q]);
    }
    row += X::kGroup;
    panel += kWidth * X::kGroup;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int q = 0; q < X::kVecs; ++q) X::store(tile.c + r * tile.c_row + q * X::kLanes, sum[r][q]);
}

using IntegerMicroFn = void (*)(const IntegerTile&);
struct IntegerMicros {
  IntegerMicroFn of[X::kRows + 1] = {};
};
template <int Rows>
constexpr void fill(IntegerMicros& table) {
  if constexpr (Rows > 0) {
    table.of[Rows] = integer_micro<Rows>;
    fill<Rows - 1>(table);
  }
}
constexpr IntegerMicros make_micros() {
  IntegerMicros table;
  fill<X::kRows>(table);
  return table;
}
constexpr IntegerMicros kMicros = make_micros();

// Packing

/// Bytes of the other sign have their top bit turned, which adds or takes 128.
template <bool Turn>
POPSR_INLINE std::uint8_t turned(std::uint8_t byte) {
  return static_cast<std::uint8_t>(Turn ? byte ^ 0x80U : byte);
}

/// A row of `k` elements, zeros up to whole groups; returns their sum.
template <bool Turn>
std::uint32_t pack_left(Left* to, const std::uint8_t* from, std::int64_t stride, std::int64_t k) {
  std::uint32_t sum = 0;
  const auto one = [&](std::int64_t i, std::uint8_t byte) __attribute__((always_inline)) {
    const std::uint8_t bits = turned<Turn>(byte);
    to[i] = bits;
    sum += bits;
  };
  if (stride == 1) {
    for (std::int64_t i = 0; i < k; ++i) one(i, from[i]);
  } else {
    for (std::int64_t i = 0; i < k; ++i) one(i, from[i * stride]);
  }
  for (std::int64_t i = k; i < padded_steps(k); ++i) to[i] = 0;
  return sum;
}

template <bool Turn>
POPSR_INLINE Right right_of(std::uint8_t byte) {
  return static_cast<std::int8_t>(turned<Turn>(byte));
}

#if defined(__AVX512VNNI__)

/// Quarters i and j of a, then of b.
template <int I, int J>
POPSR_INLINE __m512i quarters(__m512i a, __m512i b) {
  return __builtin_shufflevector(a, b, 2 * I, 2 * I + 1, 2 * J, 2 * J + 1, 8 + 2 * I, 9 + 2 * I, 8 + 2 * J,
                                 9 + 2 * J);
}

/// Four steps of 64 columns: each group's elements become neighbours.
template <bool Turn>
POPSR_INLINE void interleave(const std::uint8_t* from, std::int64_t row, __m512i (&to)[4]) {
  const auto load = [&](std::int64_t i) __attribute__((always_inline)) {
    const __m512i x = _mm512_loadu_si512(from + i * row);
    return Turn ? _mm512_xor_si512(x, _mm512_set1_epi8(static_cast<char>(-128))) : x;
  };
  const __m512i a = load(0), b = load(1), c = load(2), d = load(3);
  const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
  const __m512i low2 = _mm512_unpacklo_epi8(c, d), high2 = _mm512_unpackhi_epi8(c, d);
  // Quarter i of each has columns 16 i + 0..3, 4..7, 8..11 and 12..15.
  const __m512i q0 = _mm512_unpacklo_epi16(low, low2), q1 = _mm512_unpackhi_epi16(low, low2);
  const __m512i q2 = _mm512_unpacklo_epi16(high, high2), q3 = _mm512_unpackhi_epi16(high, high2);
  const __m512i s0 = quarters<0, 1>(q0, q1), s1 = quarters<2, 3>(q0, q1);
  const __m512i s2 = quarters<0, 1>(q2, q3), s3 = quarters<2, 3>(q2, q3);
  to[0] = quarters<0, 2>(s0, s2);
  to[1] = quarters<1, 3>(s0, s2);
  to[2] = quarters<0, 2>(s1, s3);
  to[3] = quarters<1, 3>(s1, s3);
}

template <bool Turn>
POPSR_INLINE void pack_step(Right* to, const std::uint8_t* from, std::int64_t row) {
  __m512i steps[4];
  interleave<Turn>(from, row, steps);
  for (int q = 0; q < 4; ++q) _mm512_storeu_si512(to + 64 * q, steps[q]);
}
static_assert(kWidth == 64 && X::kGroup == 4);

#elif defined(__SSE4_1__)

/// Two steps of 8 columns at a time, widened.
template <bool Turn>
POPSR_INLINE void pack_step(Right* to, const std::uint8_t* from, std::int64_t row) {
  for (std::int64_t x = 0; x < kWidth; x += 8) {
    const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + x));
    const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + row + x));
    __m128i both = _mm_unpacklo_epi8(a, b);
    if (Turn) both = _mm_xor_si128(both, _mm_set1_epi8(static_cast<char>(-128)));
    auto* const out = reinterpret_cast<__m128i*>(to + 2 * x);
    _mm_storeu_si128(out, _mm_cvtepi8_epi16(both));
    _mm_storeu_si128(out + 1, _mm_cvtepi8_epi16(_mm_unpackhi_epi64(both, both)));
  }
}
static_assert(kWidth % 8 == 0 && X::kGroup == 2);

#else

template <bool Turn>
POPSR_INLINE void pack_step(Right* to, const std::uint8_t* from, std::int64_t row) {
  for (std::int64_t x = 0; x < kWidth; ++x)
    for (std::int64_t i = 0; i < X::kGroup; ++i) to[x * X::kGroup + i] = right_of<Turn>(from[i * row + x]);
}

#endif

struct RightBlock {
  const std::uint8_t* from;
  std::int64_t row, column;  ///< Strides.
  std::int64_t steps, cols;
};

/// Packs a panel as [group of steps][column][step]; elements beyond the steps and columns are 0.
template <bool Turn>
void pack_right(Right* to, const RightBlock& block) {
  const std::int64_t groups = ceil_div(block.steps, X::kGroup);
  const bool whole = block.cols == kWidth && block.column == 1;
  for (std::int64_t g = 0; g < groups; ++g, to += kWidth * X::kGroup) {
    const std::uint8_t* const from = block.from + g * X::kGroup * block.row;
    const std::int64_t steps = at_most(block.steps - g * X::kGroup, X::kGroup);
    if (whole && steps == X::kGroup) {
      pack_step<Turn>(to, from, block.row);
      continue;
    }
    for (std::int64_t x = 0; x < kWidth; ++x)
      for (std::int64_t i = 0; i < X::kGroup; ++i) {
        const bool inside = x < block.cols && i < steps;
        to[x * X::kGroup + i] =
            inside ? right_of<Turn>(from[i * block.row + x * block.column]) : static_cast<Right>(0);
      }
  }
}

/// Packs columns whose steps are neighbours.
template <bool Turn>
void pack_columns(Right* to, const RightBlock& block) {
  constexpr std::int64_t kStride = kWidth * X::kGroup;
  const std::int64_t groups = ceil_div(block.steps, X::kGroup);
  for (std::int64_t x = 0; x < kWidth; ++x, to += X::kGroup) {
    const std::uint8_t* const from = block.from + x * block.column;
    const std::int64_t whole = x < block.cols ? block.steps / X::kGroup : 0;
    for (std::int64_t g = 0; g < whole; ++g)
      for (int i = 0; i < X::kGroup; ++i) to[g * kStride + i] = right_of<Turn>(from[g * X::kGroup + i]);
    for (std::int64_t g = whole; g < groups; ++g)
      for (int i = 0; i < X::kGroup; ++i) {
        const std::int64_t step = g * X::kGroup + i;
        const bool inside = x < block.cols && step < block.steps;
        to[g * kStride + i] = inside ? right_of<Turn>(from[step]) : static_cast<Right>(0);
      }
  }
}

// Few rows: a panel is read once, so that it is not packed

/// Most rows of such products; 0: the level has none.
#if defined(__AVX512VNNI__)
constexpr int kDirectRows = 3;
#else
constexpr int kDirectRows = 0;
#endif

/// Computes a tile over whole groups of steps of the right operand as it lies in memory. `left_zero` is the
/// zero point of the packed rows.
template <int Rows, bool Turn>
void direct_micro(const IntegerTile& tile, const RightBlock& block, std::uint32_t left_zero) {
#if defined(__AVX512VNNI__)
  using V = X::V;
  V sum[Rows][X::kVecs] = {}, columns[X::kVecs] = {};
  const V ones = X::splat(0x01010101U);
  const Left* row = tile.row;
  const std::uint8_t* from = block.from;
  for (std::int64_t g = tile.groups; g > 0; --g) {
    __m512i steps[4];
    interleave<Turn>(from, block.row, steps);
#pragma GCC unroll 4
    for (int q = 0; q < X::kVecs; ++q) {
      const V right = reinterpret_cast<V>(steps[q]);
      columns[q] = X::add_products(columns[q], ones, right);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r)
        sum[r][q] = X::add_products(sum[r][q], X::group(row + r * tile.row_pitch), right);
    }
    row += X::kGroup;
    from += X::kGroup * block.row;
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int q = 0; q < X::kVecs; ++q) {
      V x = sum[r][q] - columns[q] * X::splat(left_zero);
      if (tile.zero != nullptr) x = x - X::load(tile.zero + q * X::kLanes) * X::splat(tile.factors[r]);
      X::store(tile.c + r * tile.c_row + q * X::kLanes, x);
    }
#else
  (void)tile, (void)block, (void)left_zero;
#endif
}

using DirectFn = void (*)(const IntegerTile&, const RightBlock&, std::uint32_t);
template <bool Turn>
constexpr DirectFn kDirect[4] = {nullptr, direct_micro<1, Turn>, direct_micro<2, Turn>,
                                 direct_micro<3, Turn>};

// The product

class IntegerProduct {
 public:
  IntegerProduct(const IntegerMatmulArgs& args, void* scratch)
      : args_(args),
        pitch_(padded_steps(args.k)),
        left_zero_(static_cast<std::uint32_t>(args.a_zero) + (args.a_signed ? 128U : 0U)),
        start_(static_cast<std::uint32_t*>(scratch)),
        zero_(start_ + kWidth),
        tile_(zero_ + kWidth),
        factors_(tile_ + X::kRows * kWidth),
        panel_(reinterpret_cast<Right*>(factors_ + padded_rows(args))),
        rows_(reinterpret_cast<Left*>(panel_ + panel_elements())) {}

  static std::size_t bytes(const IntegerMatmulArgs& args) {
    const std::int64_t words = 2 * kWidth + X::kRows * kWidth + padded_rows(args);
    const std::int64_t left = block_rows(args) * row_bytes(args.k);
    return static_cast<std::size_t>(words * 4 + panel_elements() * static_cast<std::int64_t>(sizeof(Right)) +
                                    left);
  }

  void run(Range rows, Range cols) {
    const std::int64_t most = block_rows(args_);
    for (std::int64_t r = rows.begin; r < rows.end; r += most) {
      block_ = {r, at_most(rows.end, r + most)};
      pack_rows();
      for (std::int64_t x = cols.begin; x < cols.end; x += kWidth) panel(x, at_most(cols.end - x, kWidth));
    }
  }

 private:
  static constexpr std::int64_t panel_elements() { return kPanelSteps * kWidth; }
  static std::int64_t padded_rows(const IntegerMatmulArgs& args) {
    return ceil_div(block_rows(args), 16) * 16;
  }

  void pack_rows() {
    const auto* from = static_cast<const std::uint8_t*>(args_.a);
    const auto pack = args_.a_signed ? pack_left<true> : pack_left<false>;
    const std::uint32_t zeros = static_cast<std::uint32_t>(args_.k) * left_zero_;
    for (std::int64_t r = block_.begin; r < block_.end; ++r) {
      const std::int64_t i = r - block_.begin;
      factors_[i] = pack(rows_ + i * pitch_, from + r * args_.a_row, args_.a_col, args_.k) - zeros;
    }
  }

  void panel(std::int64_t x, std::int64_t cols) {
    const bool has_zero = load_zeros(x, cols);
    const bool whole = cols == kWidth && args_.k % X::kGroup == 0;
    if (whole && args_.b_col == 1 && block_.end - block_.begin <= kDirectRows) return direct(x, has_zero);
    std::int64_t k = 0;
    do {  // A product without steps is 0.
      const std::int64_t steps = at_most(kPanelSteps, args_.k - k);
      pack_panel(x, cols, k, steps);
      start_columns(ceil_div(steps, X::kGroup));
      for (std::int64_t r = block_.begin; r < block_.end; r += X::kRows) {
        tile(r, x, cols, k, steps, has_zero && k == 0);
      }
      k += steps;
    } while (k < args_.k);
  }

  void direct(std::int64_t x, bool has_zero) {
    const IntegerTile tile{.row = rows_,
                           .row_pitch = pitch_,
                           .panel = nullptr,
                           .groups = args_.k / X::kGroup,
                           .start = nullptr,
                           .zero = has_zero ? zero_ : nullptr,
                           .factors = factors_,
                           .c = reinterpret_cast<std::uint32_t*>(args_.c) + block_.begin * args_.c_row + x,
                           .c_row = args_.c_row,
                           .resume = false};
    const RightBlock block{static_cast<const std::uint8_t*>(args_.b) + x, args_.b_row, 1, args_.k, kWidth};
    (args_.b_signed ? kDirect<false> : kDirect<true>)[block_.end - block_.begin](tile, block, left_zero_);
  }

  /// Zero points of the columns as they are packed; false if all are 0.
  bool load_zeros(std::int64_t x, std::int64_t cols) {
    const std::uint32_t shift = args_.b_signed ? 0U : 128U;
    std::uint32_t any = 0;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const std::int64_t at = args_.one_b_zero ? 0 : x + i;
      zero_[i] = i < cols ? static_cast<std::uint32_t>(args_.b_zero[at]) - shift : 0U;
      any |= zero_[i];
    }
    return any != 0;
  }

  void pack_panel(std::int64_t x, std::int64_t cols, std::int64_t k, std::int64_t steps) {
    const auto* from = static_cast<const std::uint8_t*>(args_.b) + k * args_.b_row + x * args_.b_col;
    const RightBlock block{from, args_.b_row, args_.b_col, steps, cols};
    if (args_.b_row == 1 && args_.b_col != 1) {
      (args_.b_signed ? pack_columns<false> : pack_columns<true>)(panel_, block);
    } else {
      (args_.b_signed ? pack_right<false> : pack_right<true>)(panel_, block);
    }
  }

  /// Fills the starts of the columns: minus the left zero point times the sum of the panel's column.
  void start_columns(std::int64_t groups) {
    X::V sums[X::kVecs] = {};
    const X::V ones = X::splat(X::kGroup == 4 ? 0x01010101U : 0x00010001U);
    if (left_zero_ != 0) {
      const Right* at = panel_;
      for (std::int64_t g = 0; g < groups; ++g, at += kWidth * X::kGroup)
        for (int q = 0; q < X::kVecs; ++q)
          sums[q] = X::add_products(sums[q], ones, X::load(at + q * X::kLanes * X::kGroup));
    }
    for (int q = 0; q < X::kVecs; ++q) {
      X::store(start_ + q * X::kLanes, X::V{} - sums[q] * X::splat(left_zero_));
    }
  }

  void tile(std::int64_t r, std::int64_t x, std::int64_t cols, std::int64_t k, std::int64_t steps,
            bool has_zero) {
    const std::int64_t rows = at_most(block_.end - r, X::kRows);
    auto* const c = reinterpret_cast<std::uint32_t*>(args_.c) + r * args_.c_row + x;
    IntegerTile tile{.row = rows_ + (r - block_.begin) * pitch_ + k,
                     .row_pitch = pitch_,
                     .panel = panel_,
                     .groups = ceil_div(steps, X::kGroup),
                     .start = start_,
                     .zero = has_zero ? zero_ : nullptr,
                     .factors = factors_ + (r - block_.begin),
                     .c = c,
                     .c_row = args_.c_row,
                     .resume = k > 0};
    if (cols == kWidth) return kMicros.of[rows](tile);
    tile.c = tile_;
    tile.c_row = kWidth;
    for (std::int64_t i = 0; tile.resume && i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) tile_[i * kWidth + j] = c[i * args_.c_row + j];
    kMicros.of[rows](tile);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) c[i * args_.c_row + j] = tile_[i * kWidth + j];
  }

  const IntegerMatmulArgs& args_;
  std::int64_t pitch_;
  std::uint32_t left_zero_;  ///< Zero point of the rows as they are packed.
  std::uint32_t *start_, *zero_, *tile_, *factors_;
  Right* panel_;
  Left* rows_;
  Range block_ = {0, 0};
};

}  // namespace

void matmul_integer(const IntegerMatmulArgs& args, int part, int parts, void* scratch) {
  if (args.m <= 0 || args.n <= 0) return;
  Range rows = {0, args.m}, cols = {0, args.n};
  // Each part packs all of the other operand.
  if (args.n >= parts * kWidth) {
    cols = piece(args.n, kWidth, part, parts);
  } else {
    rows = piece(args.m, X::kRows, part, parts);
  }
  IntegerProduct(args, scratch).run(rows, cols);
}

std::size_t matmul_integer_scratch(const IntegerMatmulArgs& args) { return IntegerProduct::bytes(args); }

}  // namespace popsr::kernels
