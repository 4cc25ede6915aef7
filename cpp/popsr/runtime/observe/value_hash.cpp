#include "popsr/runtime/observe/value_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "popsr/base/cost.h"
#include "popsr/base/digest.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/base/layout/shape.h"

namespace popsr {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16, kStretch = std::size_t{1} << 12, kStep = 64;
constexpr std::size_t kLanes = 8;

class PieceHash {
 public:
  PieceHash() {
    for (std::size_t i = 0; i < kLanes; ++i) lanes_[i] = 0xD6E8FEB86659FD93ULL * (i + 1);
  }
  /// All but the last call: a multiple of 64 bytes.
  void add(const std::byte* data, std::size_t size) {
    std::array<std::uint64_t, kLanes> lanes = lanes_;
    std::size_t at = 0;
    for (; at + kStep <= size; at += kStep) mix(lanes, data + at);
    if (at < size) {
      std::array<std::byte, kStep> last = {};
      std::memcpy(last.data(), data + at, size - at);
      mix(lanes, last.data());
    }
    lanes_ = lanes;
    size_ += size;
  }
  std::uint64_t value() const {
    std::uint64_t hash = size_;
    for (const std::uint64_t lane : lanes_) hash = scatter(hash ^ lane);
    return hash;
  }

 private:
  static void mix(std::array<std::uint64_t, kLanes>& lanes, const std::byte* data) {
    std::array<std::uint64_t, kLanes> words;
    std::memcpy(words.data(), data, kStep);
    for (std::size_t i = 0; i < kLanes; ++i)
      lanes[i] = std::rotl((lanes[i] ^ words[i]) * 0x9E3779B97F4A7C15ULL, 29);
  }

  std::array<std::uint64_t, kLanes> lanes_;
  std::size_t size_ = 0;
};

/// True if some element is above the greatest code that is not a NaN, as signed words, which SSE2 compares.
template <class Word>
bool has_nan(const std::byte* data, std::size_t size, Word mask, Word greatest) {
  Word found = 0;
  for (std::size_t at = 0; at < size; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + at, sizeof(Word));
    found = static_cast<Word>(found | ((word & mask) > greatest ? 1 : 0));
  }
  return found != 0;
}

/// Gives all NaNs one code: all bits but the sign.
template <class Word>
const std::byte* one_nan(const FloatFormatInfo& format, const std::byte* data, std::size_t size,
                         std::byte* room) {
  const auto mask = static_cast<Word>(format.sign_bit - 1);
  const auto greatest =
      static_cast<Word>(format.inf_code == format.nan_code ? format.max_code : format.inf_code);
  if (!has_nan(data, size, mask, greatest)) return data;
  for (std::size_t at = 0; at < size; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + at, sizeof(Word));
    if ((word & mask) > greatest) word = mask;
    std::memcpy(room + at, &word, sizeof(Word));
  }
  return room;
}

/// Values of one type, as bytes in C order.
class Elements {
 public:
  Elements(const TensorType& type, const StridedView* view)
      : size_(size_of(type.dtype)), bytes_(bytes_of(type)) {
    // A format with one NaN needs no care.
    if (is_float(type.dtype) && !only_nan(type.dtype)) format_ = &info(format_of(type.dtype));
    if (view == nullptr) return;
    Shape strides = view->strides;
    for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(size_);
    nest_.emplace(view->shape, std::span(&strides, 1));
    offset_ = view->offset * static_cast<std::int64_t>(size_);
  }

  std::size_t bytes() const { return bytes_; }

  std::uint64_t piece(const std::byte* value, std::size_t begin) const {
    const std::size_t end = std::min(bytes_, begin + kPiece);
    std::array<std::byte, kStretch> gathered, nans;
    PieceHash hash;
    for (std::size_t at = begin; at < end; at += kStretch) {
      const std::size_t size = std::min(kStretch, end - at);
      const std::byte* data = value + at;
      if (nest_) {
        copy_range(*nest_, gathered.data(), kContiguous, value + offset_, 0, static_cast<std::int64_t>(size_),
                   static_cast<std::int64_t>(at / size_), static_cast<std::int64_t>(size / size_));
        data = gathered.data();
      }
      hash.add(without_nans(data, size, nans.data()), size);
    }
    return hash.value();
  }

 private:
  const std::byte* without_nans(const std::byte* data, std::size_t size, std::byte* room) const {
    if (format_ == nullptr) return data;
    switch (size_) {
      case 1:
        return one_nan<std::int8_t>(*format_, data, size, room);
      case 2:
        return one_nan<std::int16_t>(*format_, data, size, room);
      case 4:
        return one_nan<std::int32_t>(*format_, data, size, room);
      default:
        return one_nan<std::int64_t>(*format_, data, size, room);
    }
  }

  std::size_t size_, bytes_;
  const FloatFormatInfo* format_ = nullptr;
  std::optional<LoopNest> nest_ = std::nullopt;  ///< Nest of a view, in bytes.
  std::int64_t offset_ = 0;                      ///< Offset of the first element, in bytes.
};

}  // namespace

void hash_values(const TensorType& type, const StridedView* view, std::span<const std::byte* const> values,
                 std::span<std::uint64_t> hashes, ThreadPool& pool) {
  const Elements elements(type, view);
  const std::size_t pieces = (elements.bytes() + kPiece - 1) / kPiece;
  const std::size_t units = pieces * values.size();
  std::array<std::uint64_t, 64> few;
  std::vector<std::uint64_t> many(units > few.size() ? units : 0);
  std::uint64_t* const each = many.empty() ? few.data() : many.data();
  const auto threads = static_cast<std::size_t>(
      threads_for(kValueBytes, static_cast<std::int64_t>(elements.bytes() * values.size()),
                  static_cast<std::int64_t>(units), pool.threads()));
  pool.run(static_cast<int>(threads), [&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    for (std::size_t u = units * t / threads; u < units * (t + 1) / threads; ++u)
      each[u] = elements.piece(values[u / pieces], u % pieces * kPiece);
  });
  for (std::size_t v = 0; v < values.size(); ++v) {
    std::uint64_t hash = elements.bytes();
    for (std::size_t p = 0; p < pieces; ++p) hash = scatter(hash ^ each[v * pieces + p]);
    hashes[v] = hash == 0 ? 1 : hash;
  }
}

}  // namespace popsr
