#include "popsr/base/threads/thread_pool.h"

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
#include <optional>
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

/// Waits until `value` differs from `old`: spins, then calls sleep(). It spins longer while stays_awake().
template <class T, class StaysAwake, class Sleep>
void wait_while_equal(const std::atomic<T>& value, T old, const StaysAwake& stays_awake, const Sleep& sleep) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; value.load(std::memory_order_acquire) == old; ++i) {
    relax();
    if (i % 64 != 63) continue;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited <= kSpin) continue;
    if (waited <= kLongSpin && stays_awake()) {
      sched_yield();
    } else {
      sleep();
    }
  }
}

std::atomic<int> chosen_threads{0};

}  // namespace

/// A thread and its claim on a part of each job: the part is run by the one that claims it first, the
/// thread or, after its own part, the caller. A thread that is slow to wake up then delays nobody.
struct ThreadPool::Worker {
  std::thread thread;
  std::atomic<std::uint64_t> taken{0};  ///< The last job whose part was taken, by anyone.
  std::atomic<bool> asleep{false};
  std::optional<cpu_set_t> kept = {};  ///< Its processors while avoid_cpu() holds.

  bool take(std::uint64_t job) {
    std::uint64_t before = job - 1;
    return taken.compare_exchange_strong(before, job, std::memory_order_acq_rel);
  }

  /// The kernel may wake a thread on the processor of its caller, where it would wait until the caller does.
  /// Until allow_all() a sleeping thread may not run there, unless it has no other.
  void avoid_cpu(int cpu) {
    // It counts as awake from now on: another job may come before it is.
    if (!asleep.exchange(false, std::memory_order_relaxed) || cpu < 0 || cpu >= CPU_SETSIZE) return;
    cpu_set_t all;
    if (pthread_getaffinity_np(thread.native_handle(), sizeof(all), &all) != 0) return;
    cpu_set_t others = all;
    CPU_CLR(static_cast<std::size_t>(cpu), &others);
    if (CPU_COUNT(&others) == 0) return;
    if (pthread_setaffinity_np(thread.native_handle(), sizeof(others), &others) == 0) kept = all;
  }

  void allow_all() {
    if (kept) pthread_setaffinity_np(thread.native_handle(), sizeof(*kept), &*kept);
    kept.reset();
  }
};

struct ThreadPool::State {
  std::vector<Worker> workers;               ///< See worker_of().
  std::atomic<std::uint64_t> generation{0};  ///< The number of the last job, bumped also to stop.
  std::atomic<int> pending{0};  ///< Parts of the job that are not done, without the caller's own.
  std::atomic<bool> stop{false};
  std::atomic<bool> expects_work{false};
  std::atomic<int> caller_cpu{-1};  ///< The processor that the caller ran on when it published the job.
  Erased body = nullptr;
  const void* context = nullptr;
  PartTimes* times = nullptr;
  std::atomic<bool> failed{false};
  std::exception_ptr failure = nullptr;  ///< Exception of the first part that threw.
  pid_t owner = getpid();

  explicit State(int threads) : workers(static_cast<std::size_t>(threads - 1)) {}

  Worker& worker_of(int part) { return workers[static_cast<std::size_t>(part - 1)]; }

  void join() {
    stop.store(true, std::memory_order_release);
    generation.fetch_add(1, std::memory_order_acq_rel);
    generation.notify_all();
    for (Worker& worker : workers) {
      if (worker.thread.joinable()) worker.thread.join();
    }
  }

  /// Lets the workers begin a job of so many parts; returns its number.
  std::uint64_t publish(int parts) {
    const int cpu = sched_getcpu();
    const std::uint64_t job = generation.load(std::memory_order_relaxed) + 1;
    caller_cpu.store(cpu, std::memory_order_relaxed);
    pending.store(parts - 1, std::memory_order_relaxed);
    for (auto w = static_cast<std::size_t>(parts - 1); w < workers.size(); ++w) {
      workers[w].taken.store(job, std::memory_order_relaxed);  // none for it
    }
    for (Worker& worker : workers) worker.avoid_cpu(cpu);
    generation.store(job, std::memory_order_release);
    generation.notify_all();
    for (Worker& worker : workers) worker.allow_all();
    return job;
  }

  void run_part(int index) {
    try {
      body(context, index);
    } catch (...) {  // memory ran out
      if (!failed.exchange(true, std::memory_order_acq_rel)) failure = std::current_exception();
    }
  }

  void time_part(int index) {
    const std::int64_t begin = times->clock();
    run_part(index);
    std::vector<PartTimes::Span>& spans = times->threads[static_cast<std::size_t>(index)];
    if (spans.size() < times->limit) spans.push_back({begin, times->clock()});
  }

  /// The caller's part of a job, and those that no worker has begun by then.
  void run_as_caller(std::uint64_t job, int parts) {
    run_part(0);
    for (int part = 1; part < parts; ++part) {
      if (!worker_of(part).take(job)) continue;
      run_part(part);
      pending.fetch_sub(1, std::memory_order_relaxed);
    }
  }

  void work(int index) {
    // A new thread inherits its parent's flush-to-zero flags, which any fast-math library may have set.
    std::fesetenv(FE_DFL_ENV);
    Worker& self = worker_of(index);
    for (std::uint64_t seen = 0;;) {
      // One on the caller's processor would keep it from the caller.
      const auto stays_awake = [this] {
        return expects_work.load(std::memory_order_relaxed) &&
               sched_getcpu() != caller_cpu.load(std::memory_order_relaxed);
      };
      const auto sleep = [this, &self, seen] {
        self.asleep.store(true, std::memory_order_relaxed);
        generation.wait(seen, std::memory_order_acquire);
        self.asleep.store(false, std::memory_order_relaxed);
      };
      wait_while_equal(generation, seen, stays_awake, sleep);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      if (!self.take(seen)) continue;  // the caller was faster
      times == nullptr ? run_part(index) : time_part(index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

std::int64_t PartTimes::clock() const {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count() - left_out;
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
    auto fresh = std::make_unique<State>(threads_);
    try {
      for (int i = 1; i < threads_; ++i) {
        fresh->worker_of(i).thread = std::thread([state = fresh.get(), i] { state->work(i); });
      }
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
  state.times = times_;
  state.run_as_caller(state.publish(parts), parts);
  for (int left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    const auto sleep = [&state, left] { state.pending.wait(left, std::memory_order_acquire); };
    wait_while_equal(
        state.pending, left, [this] { return expects_work_; }, sleep);
  }
  if (!state.failed.load(std::memory_order_acquire)) return;
  state.failed.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(state.failure, nullptr));
}

void ThreadPool::expect_work(bool more) {
  expects_work_ = more;
  if (state_) state_->expects_work.store(more, std::memory_order_relaxed);
}

void ThreadPool::collect_times(PartTimes* times) {
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
