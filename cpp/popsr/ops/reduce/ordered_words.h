// Elements of a row as words that are ordered as the elements are: a key above the element's index, so that
// equal elements keep their order. Words are sorted without reading the elements again.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

__extension__ using Int128Word = unsigned __int128;

/// Unsigned integer of the size of T.
template <class T>
using OrderKey =
    std::conditional_t<sizeof(T) == 8, std::uint64_t,
                       std::conditional_t<sizeof(T) == 4, std::uint32_t,
                                          std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
/// Integer with the key of a T in its upper half.
template <class T>
using OrderedWord = std::conditional_t<sizeof(T) <= 4, std::uint64_t, Int128Word>;
template <class Word>
inline constexpr int kKeyShift = static_cast<int>(sizeof(Word)) * 4;
/// Bytes of the words of n elements, and of as many for sorting them.
template <class T>
constexpr std::int64_t ordered_bytes(std::int64_t n) {
  return 2 * n * static_cast<std::int64_t>(sizeof(OrderedWord<T>));
}

/// Unsigned number ordered as the elements are: -0 equals +0, and NaN is the largest.
template <class T>
constexpr OrderKey<T> order_key(T x) {
  using Key = OrderKey<T>;
  constexpr Key kTop = static_cast<Key>(Key{1} << (8 * sizeof(T) - 1));
  if constexpr (std::is_floating_point_v<T>) {
    const Key bits = x == T{0} ? Key{0} : std::bit_cast<Key>(x);
    const Key flipped = bits ^ ((bits & kTop) != 0 ? ~Key{0} : kTop);
    return x != x ? ~Key{0} : flipped;
  } else {
    return static_cast<Key>(static_cast<Key>(x) ^ (std::is_signed_v<T> ? kTop : Key{0}));
  }
}

/// Makes the words of a row; descending: larger elements have smaller words.
template <class T>
class WordsOfRow {
 public:
  using Word = OrderedWord<T>;
  WordsOfRow(const T* x, bool descending)
      : x_(x), flip_(descending ? static_cast<OrderKey<T>>(~OrderKey<T>{0}) : OrderKey<T>{0}) {}

  Word operator[](std::int64_t i) const {
    const auto key = static_cast<OrderKey<T>>(order_key(x_[i]) ^ flip_);
    return static_cast<Word>(key) << kKeyShift<Word> | static_cast<std::uint32_t>(i);
  }
  void write(Word* words, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) words[i] = (*this)[i];
  }

 private:
  const T* x_;
  OrderKey<T> flip_;
};
template <class Word>
std::int32_t index_of(Word word) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
}

/// Radix sort by digits of the keys of T, the least significant first; each pass is stable.
template <class T>
void sort_by_digits(OrderedWord<T>* words, OrderedWord<T>* room, std::int64_t n) {
  using Word = OrderedWord<T>;
  constexpr std::size_t kDigits = sizeof(T), kBuckets = 256;
  const auto digit = [](Word word, std::size_t d) {
    return static_cast<std::size_t>(word >> (kKeyShift<Word> + static_cast<int>(8 * d))) & (kBuckets - 1);
  };
  std::array<std::array<std::uint32_t, kBuckets>, kDigits> counts = {};
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::size_t d = 0; d < kDigits; ++d) ++counts[d][digit(words[i], d)];
  }
  Word *from = words, *to = room;
  for (std::size_t d = 0; d < kDigits; ++d) {
    std::uint32_t* const next = counts[d].data();
    if (next[digit(from[0], d)] == static_cast<std::uint32_t>(n)) continue;  // the same in all words
    std::uint32_t before = 0;
    for (std::size_t b = 0; b < kBuckets; ++b) before += std::exchange(next[b], before);
    for (std::int64_t i = 0; i < n; ++i) to[next[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::memcpy(words, from, static_cast<std::size_t>(n) * sizeof(Word));
}

/// Merges two sorted arrays of n words, the second after the first, from both ends and without branches.
template <class Word>
void merge_words(Word* out, const Word* in, std::int64_t n) {
  const Word *low = in, *high = in + n;
  const Word *last_low = in + n - 1, *last_high = in + 2 * n - 1;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool take_high = *high < *low, take_low = *last_high < *last_low;
    out[i] = take_high ? *high : *low;
    out[2 * n - 1 - i] = take_low ? *last_low : *last_high;
    high += take_high;
    low += !take_high;
    last_low -= take_low;
    last_high -= !take_low;
  }
}

/// Sorts eight words by Batcher's network.
template <class Word>
void sort_eight(Word* words) {
  constexpr int kPairs[][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {1, 2}, {5, 6},
                               {0, 4}, {1, 5}, {2, 6}, {3, 7}, {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
  Word w[8];
  std::copy_n(words, 8, w);
#pragma GCC unroll 19
  for (const auto& pair : kPairs) {
    const Word a = w[pair[0]], b = w[pair[1]];
    w[pair[0]] = b < a ? b : a;
    w[pair[1]] = b < a ? a : b;
  }
  std::copy_n(w, 8, words);
}

/// Merge sort.
template <class Word>
void sort_by_merging(Word* words, Word* room, std::int64_t n) {
  constexpr std::int64_t kFirst = 8;
  for (std::int64_t i = 0; i + kFirst <= n; i += kFirst) sort_eight(words + i);
  std::sort(words + n / kFirst * kFirst, words + n);
  Word *from = words, *to = room;
  for (std::int64_t run = kFirst; run < n; run *= 2) {
    std::int64_t i = 0;
    for (; i + 2 * run <= n; i += 2 * run) merge_words(to + i, from + i, run);
    const std::int64_t middle = std::min(i + run, n);
    std::merge(from + i, from + middle, from + middle, from + n, to + i);
    std::swap(from, to);
  }
  if (from != words) std::memcpy(words, from, static_cast<std::size_t>(n) * sizeof(Word));
}

/// Sorts n words of a T that are in the order of their indices; `room` is workspace for as many.
template <class T>
void sort_words(const kernels::KernelTable& kernels, OrderedWord<T>* words, OrderedWord<T>* room,
                std::int64_t n) {
  constexpr std::int64_t kFew = 16, kMany = 160;
  if constexpr (sizeof(OrderedWord<T>) == sizeof(std::uint64_t)) {
    if (n <= kernels::kFewWords) return kernels.sort_few_words(words, n);
  }
  if (n < kFew) return std::sort(words, words + n);
  n < kMany ? sort_by_merging(words, room, n) : sort_by_digits<T>(words, room, n);
}

/// Selects the first k of n words into words[0 .. k), in order, for a small k > 0.
template <class T>
void select_words(OrderedWord<T>* words, const WordsOfRow<T>& row, std::int64_t k, std::int64_t n) {
  row.write(words, k);
  std::sort(words, words + k);
  for (std::int64_t i = k; i < n; ++i) {
    const OrderedWord<T> word = row[i];
    if (!(word < words[k - 1])) continue;
    std::int64_t at = k - 1;
    for (; at > 0 && word < words[at - 1]; --at) words[at] = words[at - 1];
    words[at] = word;
  }
}

}  // namespace popsr
