// The pool runs each part exactly once, whatever it was used for before.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "support/run_at_once.h"

namespace popsr {
namespace {

std::vector<int> counts_of(ThreadPool& pool, int parts) {
  std::vector<int> counts(static_cast<std::size_t>(pool.threads()), 0);
  pool.run(parts, [&counts](int part) { ++counts[static_cast<std::size_t>(part)]; });
  return counts;
}

TEST_CASE("thread pool: every part runs once, for any number of parts") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int parts = 0; parts <= threads; ++parts) {
      std::vector<int> expected(static_cast<std::size_t>(threads), 0);
      for (int p = 0; p < parts; ++p) expected[static_cast<std::size_t>(p)] = 1;
      CHECK(counts_of(pool, parts) == expected);
    }
  }
}

TEST_CASE("thread pool: part 0 runs on the caller, part p on the same thread or on the caller") {
  ThreadPool pool(3);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread::id> own(3), used(3);
  run_at_once(pool, [&own](int part) { own[static_cast<std::size_t>(part)] = std::this_thread::get_id(); });
  CHECK(own[0] == caller);
  CHECK(own[1] != caller);
  CHECK(own[2] != caller);
  CHECK(own[1] != own[2]);
  for (int run = 0; run < 100; ++run) {
    pool.run(3, [&used](int part) { used[static_cast<std::size_t>(part)] = std::this_thread::get_id(); });
    CHECK(used[0] == caller);
    for (std::size_t p = 1; p < 3; ++p) CHECK((used[p] == own[p] || used[p] == caller));
  }
}

TEST_CASE("thread pool: the caller does not wait for threads that sleep") {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  int by_caller = 0;
  for (int run = 0; run < 100; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::thread::id of_second;
    pool.run(2, [&of_second](int part) {
      if (part == 1) of_second = std::this_thread::get_id();
    });
    by_caller += of_second == caller ? 1 : 0;
  }
  CHECK(by_caller > 0);
}

TEST_CASE("thread pool: a thread that wakes after its part was taken leaves the next run's alone") {
  ThreadPool pool(3);
  for (int run = 0; run < 300; ++run) {
    if (run % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    for (int parts = 1; parts <= 3; ++parts) {
      std::vector<int> expected(3, 0);
      std::fill_n(expected.begin(), parts, 1);
      CHECK(counts_of(pool, parts) == expected);
    }
  }
}

TEST_CASE("thread pool: workers keep the processors that they may use") {
  ThreadPool pool(2);
  cpu_set_t allowed, found;
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    counts_of(pool, 2);
    run_at_once(pool, [&found](int part) {
      if (part == 1) sched_getaffinity(0, sizeof(found), &found);
    });
    CHECK(CPU_EQUAL(&found, &allowed));
  }
}

TEST_CASE("thread pool: many runs see each other's results") {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(4, 0);
  for (int run = 0; run < 20000; ++run) {
    const int parts = 1 + run % 4;
    const std::int64_t before = sums[0];
    pool.run(parts,
             [&sums, parts](int part) { sums[static_cast<std::size_t>(part)] += part + 1 < parts ? 1 : 2; });
    if (sums[0] <= before) REQUIRE(sums[0] > before);
  }
  std::vector<std::int64_t> expected(4, 0);
  for (int run = 0; run < 20000; ++run) {
    const int parts = 1 + run % 4;
    for (int p = 0; p < parts; ++p) expected[static_cast<std::size_t>(p)] += p + 1 < parts ? 1 : 2;
  }
  CHECK(sums == expected);
}

TEST_CASE("thread pool: workers that fell asleep wake up") {
  ThreadPool pool(4);
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(counts_of(pool, 4) == std::vector<int>(4, 1));
  }
}

TEST_CASE("thread pool: a forked child starts workers of its own") {
  ThreadPool pool(3);
  CHECK(counts_of(pool, 3) == std::vector<int>(3, 1));
  const pid_t child = fork();
  if (child == 0) {
    bool good = true;
    for (int run = 0; run < 100; ++run) good = good && counts_of(pool, 3) == std::vector<int>(3, 1);
    _exit(good ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(counts_of(pool, 3) == std::vector<int>(3, 1));
}

TEST_CASE("thread pool: numbers of threads are checked") {
  CHECK_THROWS_WITH_AS(ThreadPool(0), "num_threads: too few, got 0, expected at least 1",
                       AttributeValueError);
  CHECK_THROWS_AS(set_default_threads(0), AttributeValueError);
  const char* const old = std::getenv("POPSR_NUM_THREADS");
  const std::string kept = old == nullptr ? "" : old;
  for (const char* bad : {"", "two", "0", "-1", "3x"}) {
    setenv("POPSR_NUM_THREADS", bad, 1);
    CHECK_THROWS_WITH_AS(default_threads(), doctest::Contains("POPSR_NUM_THREADS"), AttributeValueError);
  }
  setenv("POPSR_NUM_THREADS", "5", 1);
  CHECK(default_threads() == 5);
  unsetenv("POPSR_NUM_THREADS");
  CHECK(default_threads() >= 1);
  if (old != nullptr) setenv("POPSR_NUM_THREADS", kept.c_str(), 1);
}

TEST_CASE("thread pool: scratch memory is aligned, kept, and one per thread") {
  ThreadPool pool(2);
  std::vector<void*> blocks(2);
  run_at_once(pool, [&blocks](int part) { blocks[static_cast<std::size_t>(part)] = thread_scratch(1000); });
  CHECK(blocks[0] != blocks[1]);
  CHECK(reinterpret_cast<std::uintptr_t>(blocks[0]) % 64 == 0);
  CHECK(thread_scratch(500) == blocks[0]);
  CHECK(reinterpret_cast<std::uintptr_t>(thread_scratch(1 << 20)) % 64 == 0);
}

TEST_CASE("thread pool: parts on the caller use the scratch memory that it gives") {
  ThreadPool pool(2);
  double own = 0;
  const PartScratch rooms(&own);
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run(2, [&, caller = std::this_thread::get_id()](int) {
      const bool is_caller = std::this_thread::get_id() == caller;
      CHECK((rooms.of_thread(1000) == (is_caller ? &own : thread_scratch(1000))));
    });
  }
}

}  // namespace
}  // namespace popsr
