#include "popsr/sr/walk.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "popsr/base/cost.h"
#include "popsr/base/layout/loop_nest.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"

namespace popsr::kernels {
namespace {

/// Outputs of this size leave the caches before anybody reads them.
constexpr std::int64_t kStreamBytes = 8 << 20;
constexpr std::size_t kMaxArrays = 4;

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

/// The elements of n that thread `part` of `parts` does, in whole tiles.
Range range_of(std::int64_t n, int part, int parts) {
  const std::int64_t tiles = (n + kRoundingTile - 1) / kRoundingTile;
  const std::int64_t each = (tiles + parts - 1) / parts * kRoundingTile;
  return {std::min(n, part * each), std::min(n, (part + 1) * each)};
}

/// A contiguous piece of every array.
struct Piece {
  std::int64_t begin;
  std::int64_t n;
  std::byte* data[kMaxArrays];
  std::uint64_t number;  ///< Number of the first element.
  bool stream;           ///< The first array may be written around the caches.
};

/// The arrays of one walk.
class Walk {
 public:
  /// `read` and `written`: sets of arrays, as bits.
  Walk(const SrShape& shape, const std::vector<SrArray>& arrays, unsigned read, unsigned written,
       SrRuns runs = {})
      : arrays_(arrays),
        read_(read),
        written_(written),
        runs_(runs),
        nest_(shape, strides_of(arrays)),
        n_(nest_.count()) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      direct_.push_back(nest_.contiguous(i, size_of(arrays[i].format)));
      all_direct_ = all_direct_ && direct_.back();
      const bool other_reads = i > 0 && arrays[i].data == arrays[0].data;
      stream_ = stream_ && !other_reads;
    }
    stream_ = stream_ && runs.empty() && direct_[0] && n_ * size_of(arrays[0].format) >= kStreamBytes;
  }

  /// Calls body(piece) for every piece, some on other threads.
  template <class Body>
  void run(int threads, const Body& body) const {
    const int parts = parts_for(n_, threads);
    const auto part_body = [&](int part) { run_range(range_of(n_, part, parts), body); };
    using Part = decltype(part_body);
    run_parts(
        parts, [](const void* context, int part) { (*static_cast<const Part*>(context))(part); }, &part_body);
  }

 private:
  static std::vector<Shape> strides_of(const std::vector<SrArray>& arrays) {
    std::vector<Shape> strides;
    for (const SrArray& array : arrays) strides.push_back(array.strides);
    return strides;
  }

  template <class Body>
  void run_range(Range range, const Body& body) const {
    if (range.begin == range.end) return;
    const std::int64_t most = all_direct_ ? range.end - range.begin : kRoundingTile;
    auto* buffers =
        all_direct_ ? nullptr : static_cast<std::byte*>(thread_scratch(kMaxArrays * kRoundingTile * 8));
    for (std::int64_t begin = range.begin; begin < range.end; begin += most) {
      const Piece piece = open(buffers, begin, std::min(most, range.end - begin));
      for_each_run(runs_, begin, begin + piece.n, [&](std::int64_t i, std::int64_t n, std::uint64_t number) {
        body(part_of(piece, i, n, number));
      });
      close(piece);
    }
  }

  Piece part_of(Piece piece, std::int64_t begin, std::int64_t n, std::uint64_t number) const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      piece.data[i] += (begin - piece.begin) * size_of(arrays_[i].format);
    }
    piece.begin = begin;
    piece.n = n;
    piece.number = number;
    return piece;
  }

  Piece open(std::byte* buffers, std::int64_t begin, std::int64_t n) const {
    Piece piece = {begin, n, {}, static_cast<std::uint64_t>(begin), stream_};
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const std::int64_t size = size_of(arrays_[i].format);
      piece.data[i] = direct_[i] ? arrays_[i].data + begin * size : buffers + i * kRoundingTile * 8;
      if (direct_[i] || ((read_ >> i) & 1U) == 0) continue;
      copy_range(nest_, piece.data[i], kContiguous, arrays_[i].data, i, size, begin, n);
    }
    return piece;
  }
  void close(const Piece& piece) const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (direct_[i] || ((written_ >> i) & 1U) == 0) continue;
      const std::int64_t size = size_of(arrays_[i].format);
      copy_range(nest_, arrays_[i].data, i, piece.data[i], kContiguous, size, piece.begin, piece.n);
    }
  }

  const std::vector<SrArray>& arrays_;
  unsigned read_;
  unsigned written_;
  SrRuns runs_;
  LoopNest nest_;
  std::int64_t n_;  ///< Elements.
  std::vector<bool> direct_;
  bool all_direct_ = true;
  bool stream_ = true;
};

}  // namespace

int parts_for(std::int64_t n, int threads) {
  const std::int64_t most = threads > 0 ? threads : default_threads();
  return static_cast<int>(threads_for(kRoundingWork, n, most, most));
}

void run_parts(int parts, void (*body)(const void* context, int part), const void* context) {
  static std::mutex mutex;
  // Never destroyed: a daemon thread may be here when the process exits.
  static std::unique_ptr<ThreadPool>& pool = *new std::unique_ptr<ThreadPool>();
  const auto guarded = [&](int part) {
    const FloatEnvironment environment;
    body(context, part);
  };
  if (parts > 1) {
    if (const std::unique_lock lock(mutex, std::try_to_lock); lock.owns_lock()) {
      if (pool == nullptr || pool->threads() < parts) pool = std::make_unique<ThreadPool>(parts);
      pool->run(parts, guarded);
      return;
    }
  }
  for (int part = 0; part < parts; ++part) guarded(part);
}

void sr_run(const SrCall& call, const SrShape& shape, const std::vector<SrArray>& arrays, int threads,
            SrRuns runs) {
  const KernelTable& table = kernel_table();
  Walk(shape, arrays, 0b1110, 0b0001, runs).run(threads, [&](const Piece& piece) {
    SrCall part = call;
    part.n = piece.n;
    part.out = piece.data[0];
    for (std::size_t i = 1; i < arrays.size(); ++i) {
      part.in[i - 1] = piece.data[i];
      part.formats[i - 1] = arrays[i].format;
    }
    part.stream = piece.stream;
    part.rounding.first += piece.number;
    if (call.rounding.uniform != nullptr) part.rounding.uniform += piece.begin;
    table.sr_apply(part);
  });
}

void sr_run_adamw(const SrAdamw& step, const SrShape& shape, const std::vector<SrArray>& arrays, int threads,
                  SrRuns runs) {
  const KernelTable& table = kernel_table();
  Walk(shape, arrays, 0b1111, 0b1101, runs).run(threads, [&](const Piece& piece) {
    SrAdamw part = step;
    part.n = piece.n;
    part.first += piece.number;
    part.w = piece.data[0];
    part.g = piece.data[1];
    part.m = piece.data[2];
    part.v = piece.data[3];
    for (std::size_t i = 0; i < 4; ++i) part.formats[i] = arrays[i].format;
    table.sr_adamw(part);
  });
}

void sr_run_value(const SrValueAdd& call, const SrShape& shape, const std::vector<SrArray>& arrays,
                  int threads) {
  const KernelTable& table = kernel_table();
  Walk(shape, arrays, 0b1110, 0b0001).run(threads, [&](const Piece& piece) {
    SrValueAdd part = call;
    part.n = piece.n;
    part.out = piece.data[0];
    part.x = piece.data[1];
    part.y = piece.data[2];
    part.stream = piece.stream;
    table.sr_value_add(part);
  });
}

}  // namespace popsr::kernels
