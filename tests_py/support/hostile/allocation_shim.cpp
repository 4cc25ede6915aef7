// Loaded before everything else (LD_PRELOAD): C++ allocations of the whole process that can be told to fail. Python
// allocates in other ways, so what fails is popsr (and pybind11 inside it).
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
std::atomic<std::int64_t> left{kNever};  // allocations until one fails
std::atomic<bool> for_ever{false};
std::atomic<std::int64_t> refused{0};

bool fails() {
  if (left.load(std::memory_order_relaxed) == kNever) return false;
  const std::int64_t before = left.fetch_sub(1, std::memory_order_relaxed);
  if (before > 0 || (before < 0 && !for_ever.load(std::memory_order_relaxed))) return false;
  refused.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(size == 0 ? 1 : size);
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const data = allocate(size, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

std::size_t of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

extern "C" {

/// The allocation of that number from now on fails (the first is 0), and with `forever` those after it too.
void shim_arm(std::int64_t number, int forever) {
  refused.store(0);
  for_ever.store(forever != 0);
  left.store(number);
}

/// No more failures; returns how many there were.
std::int64_t shim_disarm() {
  left.store(kNever);
  return refused.load();
}
}

void* operator new(std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new[](std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::align_val_t at) { return allocate_or_throw(size, of(at)); }
void* operator new[](std::size_t size, std::align_val_t at) { return allocate_or_throw(size, of(at)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t at, const std::nothrow_t&) noexcept {
  return allocate(size, of(at));
}
void* operator new[](std::size_t size, std::align_val_t at, const std::nothrow_t&) noexcept {
  return allocate(size, of(at));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }
