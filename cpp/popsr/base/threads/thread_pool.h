// Small thread pool for fixed splits: part p of `parts` always does the same work, so no result depends on
// the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace popsr {

/// Times at which threads other than the caller began and ended parts of the work, at most `limit` per
/// thread.
struct PartTimes {
  struct Span {
    std::int64_t begin = 0, end = 0;  ///< Begin and end in nanoseconds of clock().
  };
  explicit PartTimes(std::size_t most) : limit(most) {}
  /// Nanoseconds of the steady clock without those that are left out.
  std::int64_t clock() const;
  std::size_t limit;
  std::int64_t left_out = 0;  ///< Changed by the caller only, while no part is in progress.
  /// Spans by thread; the caller's list is the first, and empty.
  std::vector<std::vector<Span>> threads = {};
};

class ThreadPool {
 public:
  /// Makes a pool of `threads` >= 1 threads, the calling thread included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Announces that more calls of run() follow soon, or that none do: workers wait for them awake for some
  /// milliseconds.
  void expect_work(bool more);

  /// Adds the times of further parts to `times`; null ends that.
  void collect_times(PartTimes* times);

  /// Calls body(part) for part = 0..parts-1 with parts <= threads(), part 0 on the caller, and waits for
  /// all. The caller also runs parts whose threads have not begun when it is done with its own, one after
  /// the other. `body` must not throw. Not reentrant: a body must not call run().
  template <class Body>
  void run(int parts, const Body& body) {
    if (parts <= 1) {
      if (parts == 1) body(0);
      return;
    }
    run_erased(
        parts, [](const void* context, int part) { (*static_cast<const Body*>(context))(part); }, &body);
  }

 private:
  using Erased = void (*)(const void* context, int part);
  void run_erased(int parts, Erased body, const void* context);

  struct Worker;
  struct State;
  int threads_;
  bool expects_work_ = false;
  PartTimes* times_ = nullptr;
  /// State of the workers, which start at the first use; a forked child starts its own.
  std::unique_ptr<State> state_;
};

/// Scope during which workers expect work.
class ExpectedWork {
 public:
  explicit ExpectedWork(ThreadPool& pool) : pool_(pool) { pool_.expect_work(true); }
  ~ExpectedWork() { pool_.expect_work(false); }
  ExpectedWork(const ExpectedWork&) = delete;
  ExpectedWork& operator=(const ExpectedWork&) = delete;

 private:
  ThreadPool& pool_;
};

/// Number of threads of new sessions: set_default_threads(), otherwise POPSR_NUM_THREADS, otherwise the
/// CPUs this process may use. Throws AttributeValueError unless threads >= 1.
int default_threads();
void set_default_threads(int threads);

/// Scratch memory of the calling thread: 64-byte aligned, grows and is reused, contents undefined.
void* thread_scratch(std::size_t bytes);

/// Scratch memory for parts of a run whose caller uses thread_scratch() for something else meanwhile: on
/// the thread that makes this object it is `own`.
class PartScratch {
 public:
  explicit PartScratch(void* own) : own_(own) {}
  void* of_thread(std::size_t bytes) const {
    return std::this_thread::get_id() == caller_ ? own_ : thread_scratch(bytes);
  }

 private:
  std::thread::id caller_ = std::this_thread::get_id();
  void* own_;
};

}  // namespace popsr
