#include "popsr/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "popsr/base/error.h"

namespace popsr {
namespace {

// A worker that finds no work spins this long before it sleeps: purely sleeping workers halve training speed.
// While more work is announced it waits longer, and lets other processes have the core.
constexpr auto kSpin = std::chrono::microseconds(15), kLongSpin = std::chrono::microseconds(2000);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `value` differs from `old`: spins, then blocks. It spins longer while stays_awake().
template <class T, class StaysAwake>
void wait_while_equal(const std::atomic<T>& value, T old, const StaysAwake& stays_awake) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; value.load(std::memory_order_acquire) == old; ++i) {
    relax();
    if (i % 64 != 63) continue;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited <= kSpin) continue;
    if (waited <= kLongSpin && stays_awake()) {
      sched_yield();
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

/// Moves the calling thread from a processor to another one that it may use, if there is one.
void leave_processor(int cpu) {
  cpu_set_t allowed;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(cpu), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

std::atomic<int> chosen_threads{0};

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::atomic<std::uint64_t> generation{0};  ///< Bumped to publish a job or to stop.
  std::atomic<int> pending{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> expects_work{false};
  std::atomic<int> caller_cpu{-1};  ///< The processor that the caller ran on when it published the job.
  Erased body = nullptr;
  const void* context = nullptr;
  int parts = 0;
  PartTimes* times = nullptr;
  std::atomic<bool> failed{false};
  std::exception_ptr failure = nullptr;  ///< Of the first part that threw.
  pid_t owner = getpid();

  void join() {
    stop.store(true, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  void run_part(int index) {
    try {
      body(context, index);
    } catch (...) {  // memory ran out
      if (!failed.exchange(true, std::memory_order_acq_rel)) failure = std::current_exception();
    }
  }

  void time_part(int index) {
    const std::int64_t begin = PartTimes::now();
    run_part(index);
    std::vector<PartTimes::Span>& spans = times->threads[static_cast<std::size_t>(index)];
    if (spans.size() < times->limit) spans.push_back({begin, PartTimes::now()});
  }

  /// A worker that was woken on the caller's processor runs when the caller waits, and the caller when the
  /// worker does. The kernel leaves both there while each of them is brief: after some jobs the worker moves.
  void leave_caller(int& jobs_beside) const {
    constexpr int kSomeJobs = 8;
    const int cpu = caller_cpu.load(std::memory_order_relaxed);
    jobs_beside = sched_getcpu() == cpu ? jobs_beside + 1 : 0;
    if (jobs_beside < kSomeJobs) return;
    leave_processor(cpu);
    jobs_beside = 0;
  }

  void work(int index) {
    // A new thread inherits its parent's flush-to-zero flags, which any fast-math library may have set.
    std::fesetenv(FE_DFL_ENV);
    int jobs_beside = 0;  // the caller, one after the other
    for (std::uint64_t seen = 0;;) {
      // One on the caller's processor would keep it from the caller.
      wait_while_equal(generation, seen, [this] {
        return expects_work.load(std::memory_order_relaxed) &&
               sched_getcpu() != caller_cpu.load(std::memory_order_relaxed);
      });
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      leave_caller(jobs_beside);
      if (index < parts) times == nullptr ? run_part(index) : time_part(index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

std::int64_t PartTimes::now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  if (threads < 1) raise<AttributeValueError>("num_threads: too few, got {}, expected at least 1", threads);
}

ThreadPool::~ThreadPool() {
  if (!state_) return;
  if (state_->owner != getpid()) {
    // The threads stayed in the parent of the fork: nothing to join, and a joinable std::thread must not be
    // destroyed.
    (void)state_.release();
    return;
  }
  state_->join();
}

void ThreadPool::run_erased(int parts, Erased body, const void* context) {
  if (state_ && state_->owner != getpid()) (void)state_.release();
  if (!state_) {
    auto fresh = std::make_unique<State>();
    try {
      for (int i = 1; i < threads_; ++i)
        fresh->workers.emplace_back([state = fresh.get(), i] { state->work(i); });
    } catch (...) {  // the system has no more threads: none is left behind, and the next run tries again
      fresh->join();
      throw;
    }
    fresh->expects_work.store(expects_work_, std::memory_order_relaxed);
    state_ = std::move(fresh);
  }
  State& state = *state_;
  state.body = body;
  state.context = context;
  state.parts = parts;
  state.times = times_;
  state.caller_cpu.store(sched_getcpu(), std::memory_order_relaxed);
  state.pending.store(threads_ - 1, std::memory_order_relaxed);
  state.generation.fetch_add(1, std::memory_order_acq_rel);
  state.generation.notify_all();
  state.run_part(0);
  for (int left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    wait_while_equal(state.pending, left, [&] { return expects_work_; });
  }
  if (!state.failed.load(std::memory_order_acquire)) return;
  state.failed.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(state.failure, nullptr));
}

void ThreadPool::expect_work(bool more) {
  expects_work_ = more;
  if (state_) state_->expects_work.store(more, std::memory_order_relaxed);
}

void ThreadPool::keep_times(PartTimes* times) {
  times_ = times;
  if (times != nullptr) times->threads.resize(static_cast<std::size_t>(threads_));
}

int default_threads() {
  if (const int chosen = chosen_threads.load(); chosen > 0) return chosen;
  if (const char* text = std::getenv("POPSR_NUM_THREADS")) {
    int value = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
    if (error != std::errc() || *end != '\0' || value < 1) {
      raise<AttributeValueError>("POPSR_NUM_THREADS: not a positive number, got '{}', expected 1, 2, ...",
                                 text);
    }
    return value;
  }
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return std::max(1, CPU_COUNT(&cpus));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void set_default_threads(int threads) {
  if (threads < 1)
    raise<AttributeValueError>("set_num_threads: too few, got {}, expected at least 1", threads);
  chosen_threads.store(threads);
}

void* thread_scratch(std::size_t bytes) {
  struct Block {
    void* memory = nullptr;
    std::size_t size = 0;
    ~Block() { ::operator delete (memory, std::align_val_t{64}); }
  };
  thread_local Block block;
  if (bytes > block.size) {
    ::operator delete (std::exchange(block.memory, nullptr), std::align_val_t{64});
    block.size = 0;
    block.memory = ::operator new (bytes, std::align_val_t{64});
    block.size = bytes;
  }
  return block.memory;
}

}  // namespace popsr
