// Memory that runs out at a chosen point: operator new of this program can be told to fail.
#pragma once

#include <cstdint>

namespace popsr::test {

/// While it lives, allocations of this thread through operator new fail from the one of that number on (the
/// first is 0): once, or for ever.
class AllocationFault {
 public:
  enum class Duration : std::uint8_t { kOnce, kForEver };

  explicit AllocationFault(std::int64_t number, Duration duration = Duration::kOnce);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;
};

/// Calls `attempt` with memory that runs out at its first allocation, its second, and so on, until it needs
/// no more; then `check`, unless it went through. Returns how often it did not.
template <class Attempt, class Check>
std::int64_t with_each_fault(AllocationFault::Duration duration, const Attempt& attempt, const Check& check);

}  // namespace popsr::test

#include <new>

template <class Attempt, class Check>
std::int64_t popsr::test::with_each_fault(AllocationFault::Duration duration, const Attempt& attempt,
                                          const Check& check) {
  for (std::int64_t number = 0;; ++number) {
    bool failed = false;
    try {
      const AllocationFault fault(number, duration);
      attempt();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    if (!failed) return number;
    check();
  }
}
