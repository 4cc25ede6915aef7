#include "support/allocation_faults.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace popsr::test {
namespace {

struct State {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();  ///< Allocations until one fails.
  bool for_ever = false;
};

constinit thread_local State state;

bool fails() {
  if (state.left == std::numeric_limits<std::int64_t>::max()) return false;
  if (state.left > 0) {
    --state.left;
    return false;
  }
  if (!state.for_ever) state = {};
  return true;
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  if (size > std::numeric_limits<std::size_t>::max() - alignment) return nullptr;  // rounded up it is small
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const data = allocate(size, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

AllocationFault::AllocationFault(std::int64_t number, Duration duration) {
  state = {.left = number, .for_ever = duration == Duration::kForEver};
}

AllocationFault::~AllocationFault() { state = {}; }

}  // namespace popsr::test

using popsr::test::allocate;
using popsr::test::allocate_or_throw;

// Operators for arrays call these.
void* operator new(std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t, const std::nothrow_t&) noexcept { std::free(data); }
