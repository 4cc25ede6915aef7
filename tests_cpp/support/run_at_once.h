// Parts of a pool that each run on the thread that is theirs.
#pragma once

#include <atomic>
#include <thread>

#include "popsr/base/threads/thread_pool.h"

namespace popsr {

/// Calls body(part) for as many parts as the pool has threads. Each part waits for all others, so that none
/// of them can be run by the caller when it is done with its own.
template <class Body>
void run_at_once(ThreadPool& pool, const Body& body) {
  std::atomic<int> missing{pool.threads()};
  pool.run(pool.threads(), [&](int part) {
    for (missing.fetch_sub(1); missing.load() != 0;) std::this_thread::yield();
    body(part);
  });
}

}  // namespace popsr
