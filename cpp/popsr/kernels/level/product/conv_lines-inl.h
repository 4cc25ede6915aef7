// Convolutions of one output channel line by line: lines have the same ends as in the result, and several
// are computed together, since their chains are short and independent of each other.
#pragma once

#include "popsr/kernels/level/product/matmul_product-inl.h"

namespace popsr::kernels {
namespace {

/// Largest number of lines that are computed together.
template <class X>
constexpr int kLinesTogether = sizeof(typename X::V) == 64 ? 8 : 4;

template <class X, int Lines, int Vecs, bool Partial>
void lines_micro(const ConvLinesArgs& args, std::int64_t line, std::int64_t column, int cols) {
  using T = typename X::T;
  using V = typename X::V;
  V acc[Lines][Vecs] = {};
  const std::int64_t pitch = args.x_line;
  const T* const a = static_cast<const T*>(args.a);
  const T* const from = static_cast<const T*>(args.x) + line * pitch + column;
  for (std::int64_t k = 0; k < args.k; ++k) {
    const V s = X::splat(a[k]);
    const T* const x = from + args.offset[k];
#pragma GCC unroll 8
    for (int l = 0; l < Lines; ++l)
#pragma GCC unroll 2
      for (int q = 0; q < Vecs; ++q) {
        const T* const at = x + l * pitch + q * X::kLanes;
        acc[l][q] = X::fma(s, Partial ? X::load_part(at, cols) : X::load(at), acc[l][q]);
      }
  }
  T* const c = static_cast<T*>(args.c) + line * args.c_line + column;
  store_tile<X, Lines, Vecs, Partial>(acc, c, args.c_line, cols);
}

template <class X>
using LinesMicroFn = void (*)(const ConvLinesArgs&, std::int64_t, std::int64_t, int);

/// Kernels of 1, 2, 4 and 8 lines by panel shape.
template <class X, int Vecs, bool Partial>
constexpr LinesMicroFn<X> kLinesMicros[4] = {
    lines_micro<X, 1, Vecs, Partial>, lines_micro<X, 2, Vecs, Partial>, lines_micro<X, 4, Vecs, Partial>,
    kLinesTogether<X> == 8 ? lines_micro<X, kLinesTogether<X>, Vecs, Partial> : nullptr};

/// Keeps x in a register; otherwise compilers load it again for each use.
template <class V>
POPSR_INLINE V kept(V x) {
#if defined(__x86_64__)
  __asm__("" : "+v"(x));
#endif
  return x;
}

/// True for steps of three lines of three, a line of the image apart: each vector of the image contributes
/// to three lines of the result, and each chain still takes its steps in their order.
inline bool is_three_by_three(const ConvLinesArgs& args) {
  if (args.k != 9) return false;
  for (int i = 3; i < 9; ++i)
    if (args.offset[i] != args.offset[i - 3] + args.x_line) return false;
  return true;
}

template <class X>
POPSR_INLINE void load_weights(typename X::V (&weights)[9], const void* from) {
#pragma GCC unroll 9
  for (int i = 0; i < 9; ++i) weights[i] = X::splat(static_cast<const typename X::T*>(from)[i]);
}

/// Adds a vector of line `from` of the image, at step `i` of its three, to the lines of the result that it
/// contributes to.
template <class X, int Lines>
POPSR_INLINE void add_to_lines(typename X::V (&acc)[Lines][1], const typename X::V (&weights)[9],
                               typename X::V value, int from, int i) {
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j)
    if (from >= j && from - j < Lines) acc[from - j][0] = X::fma(weights[3 * j + i], value, acc[from - j][0]);
}

template <class X, int Lines, bool Partial>
void three_by_three_micro(const ConvLinesArgs& args, std::int64_t line, std::int64_t column, int cols) {
  using T = typename X::T;
  using V = typename X::V;
  V weights[9];
  load_weights<X>(weights, args.a);
  const T* x = static_cast<const T*>(args.x) + line * args.x_line + column;
  V acc[Lines][1] = {};
#pragma GCC unroll 10
  for (int from = 0; from < Lines + 2; ++from, x += args.x_line)
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const T* const at = x + args.offset[i];
      add_to_lines<X>(acc, weights, kept(Partial ? X::load_part(at, cols) : X::load(at)), from, i);
    }
  T* const c = static_cast<T*>(args.c) + line * args.c_line + column;
  store_tile<X, Lines, 1, Partial>(acc, c, args.c_line, cols);
}

template <class X, bool Partial>
constexpr LinesMicroFn<X> kThreeByThree[4] = {
    three_by_three_micro<X, 1, Partial>, three_by_three_micro<X, 2, Partial>,
    three_by_three_micro<X, 4, Partial>,
    kLinesTogether<X> == 8 ? three_by_three_micro<X, kLinesTogether<X>, Partial> : nullptr};

template <class X>
void conv_lines(const ConvLinesArgs& args) {
  const bool is_square = is_three_by_three(args);
  std::int64_t cols = 0;
  for (std::int64_t j = 0; j < args.n; j += cols) {
    cols = is_square ? at_most(args.n - j, X::kLanes) : panel_width<X>(args.n - j);
    const LinesMicroFn<X>* const micros =
        is_square               ? (cols == X::kLanes ? kThreeByThree<X, false> : kThreeByThree<X, true>)
        : cols == 2 * X::kLanes ? kLinesMicros<X, 2, false>
        : cols == X::kLanes     ? kLinesMicros<X, 1, false>
                                : kLinesMicros<X, 1, true>;
    std::int64_t together = kLinesTogether<X>;
    for (std::int64_t l = 0; l < args.lines; l += together) {
      while (together > args.lines - l) together /= 2;
      micros[together == 8 ? 3 : together / 2](args, l, j, static_cast<int>(cols));
    }
  }
}

/// Computes three by three steps over a plane with zeros around it, which are not in memory; `Edge`: the
/// columns are beside them.
template <class X, int Lines, bool Edge>
void plane_micro(const ConvPlaneArgs& args, std::int64_t line, std::int64_t column, int cols) {
  using T = typename X::T;
  using V = typename X::V;
  V weights[9];
  load_weights<X>(weights, args.a);
  const int first = column == 0 ? 1 : 0;  // Lane of the left column that is in the plane.
  const int last = static_cast<int>(at_most(args.n - column - 1, cols));
  const T* const x = static_cast<const T*>(args.x) + column - 1;
  V acc[Lines][1] = {};
#pragma GCC unroll 10
  for (int from = 0; from < Lines + 2; ++from) {
    const std::int64_t y = line + from - 1;
    V v[3] = {};
    if (y >= 0 && y < args.lines) {
      const T* const at = x + y * args.n;
      v[0] = Edge ? X::load_between(at, first, cols) : X::load(at);
      v[1] = Edge ? X::load_between(at + 1, 0, cols) : X::load(at + 1);
      v[2] = Edge ? X::load_between(at + 2, 0, last) : X::load(at + 2);
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) add_to_lines<X>(acc, weights, kept(v[i]), from, i);
  }
  T* const c = static_cast<T*>(args.c) + line * args.n + column;
  store_tile<X, Lines, 1, Edge>(acc, c, args.n, cols);
}

template <class X>
using PlaneMicroFn = void (*)(const ConvPlaneArgs&, std::int64_t, std::int64_t, int);
template <class X, bool Edge>
constexpr PlaneMicroFn<X> kPlaneMicros[4] = {
    plane_micro<X, 1, Edge>, plane_micro<X, 2, Edge>, plane_micro<X, 4, Edge>,
    kLinesTogether<X> == 8 ? plane_micro<X, kLinesTogether<X>, Edge> : nullptr};

template <class X>
void conv_plane(const ConvPlaneArgs& args) {
  for (std::int64_t j = 0; j < args.n; j += X::kLanes) {
    const auto cols = static_cast<int>(at_most(args.n - j, X::kLanes));
    const bool edge = j == 0 || j + X::kLanes + 1 > args.n;
    const PlaneMicroFn<X>* const micros = edge ? kPlaneMicros<X, true> : kPlaneMicros<X, false>;
    std::int64_t together = kLinesTogether<X>;
    for (std::int64_t l = args.begin; l < args.end; l += together) {
      while (together > args.end - l) together /= 2;
      micros[together == 8 ? 3 : together / 2](args, l, j, cols);
    }
  }
}

/// Every other element of two vectors.
template <class X>
POPSR_INLINE typename X::V even_of(typename X::V a, typename X::V b) {
  if constexpr (X::kLanes == 16) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  } else if constexpr (X::kLanes == 8) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
  } else if constexpr (X::kLanes == 4) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6);
  } else {
    return __builtin_shufflevector(a, b, 0, 2);
  }
}

/// Copies to[i] = from[i * Step] for i < n; reads nothing behind the last one.
template <class X, int Step>
POPSR_INLINE void copy_line(typename X::T* to, const typename X::T* from, std::int64_t n) {
  constexpr std::int64_t kLanes = X::kLanes;
  std::int64_t i = 0;
  if constexpr (Step == 1) {
    for (; i + kLanes <= n; i += kLanes) X::store(to + i, X::load(from + i));
    const auto left = static_cast<int>(n - i);
    if (left > 0) X::store_part(to + i, X::load_part(from + i, left), left);
  } else {
    for (; i + kLanes < n; i += kLanes)
      X::store(to + i, even_of<X>(X::load(from + 2 * i), X::load(from + 2 * i + kLanes)));
    const std::int64_t left = n - i, last = 2 * left - 1;
    if (left <= 0) return;
    const auto low = static_cast<int>(at_most(last, kLanes)),
               high = static_cast<int>(at_least(last - kLanes, 0));
    const auto a = low == kLanes ? X::load(from + 2 * i) : X::load_part(from + 2 * i, low);
    const auto b = X::load_part(from + 2 * i + kLanes, high);
    if (left == kLanes) {
      X::store(to + i, even_of<X>(a, b));
    } else {
      X::store_part(to + i, even_of<X>(a, b), static_cast<int>(left));
    }
  }
}

template <class X>
void fill_lines(const FillLinesArgs& args) {
  using T = typename X::T;
  T* to = static_cast<T*>(args.to);
  const T* from = static_cast<const T*>(args.from);
  for (std::int64_t line = 0; line < args.lines; ++line, from += args.from_line) {
    for (std::int64_t i = 0; i < args.before; ++i) *to++ = T{0};
    if (args.step == 1) {
      copy_line<X, 1>(to, from, args.n);
    } else if (args.step == 2) {
      copy_line<X, 2>(to, from, args.n);
    } else {
      for (std::int64_t i = 0; i < args.n; ++i) to[i] = from[i * args.step];
    }
    to += args.n;
    for (std::int64_t i = 0; i < args.after; ++i) *to++ = T{0};
  }
}

}  // namespace
}  // namespace popsr::kernels
