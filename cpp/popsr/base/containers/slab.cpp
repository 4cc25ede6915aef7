#include "popsr/base/containers/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include "popsr/base/no_memory.h"

namespace popsr {
namespace {

// Slabs from the first size on are pages of their own, which the system takes back when the slab goes.
// From the second on these are of 2 MiB where the system has them: products step through the rows of
// large matrices, each of which is on a page of its own otherwise.
constexpr std::size_t kMappedSlab = std::size_t{1} << 20, kHugeSlab = std::size_t{1} << 22;
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr std::size_t kPages = std::size_t{1} << 16;  // whole pages, on every system

// Under the address sanitizer all slabs come from its allocator, which finds accesses beyond their ends.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kHasRedZones = true;
#else
constexpr bool kHasRedZones = false;
#endif

bool is_mapped(std::size_t bytes) { return bytes >= kMappedSlab && !kHasRedZones; }

std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes >= kHugeSlab ? kHugePage : Slab::kAlignment};
}

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Pages from the system: zeros that take no memory until they are written.
std::byte* map(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) return nullptr;
  const std::size_t size = round_up(bytes, kPages), more = bytes >= kHugeSlab ? kHugePage : 0;
  void* const all = ::mmap(nullptr, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  if (more == 0) return static_cast<std::byte*>(all);
  const auto address = reinterpret_cast<std::uintptr_t>(all);
  const std::size_t before = round_up(address, kHugePage) - address, behind = more - before;
  std::byte* const data = static_cast<std::byte*>(all) + before;
  if (before > 0) ::munmap(all, before);
  if (behind > 0) ::munmap(data + size, behind);
  ::madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // speed only
  return data;
}

std::byte* allocate(std::size_t bytes) {
  void* const data =
      is_mapped(bytes) ? map(bytes)
                       : ::operator new(std::max(bytes, Slab::kAlignment), alignment_of(bytes), std::nothrow);
  if (data == nullptr) throw NoMemory("session", bytes);
  return static_cast<std::byte*>(data);
}

}  // namespace

Slab::Slab(std::size_t bytes, Fill fill) : size_(bytes), data_(allocate(bytes), Free{bytes}) {
  if (fill == Fill::kZeros && !is_mapped(bytes)) std::memset(data_.get(), 0, bytes);
}

void Slab::Free::operator()(std::byte* data) const {
  if (is_mapped(bytes)) {
    ::munmap(data, round_up(bytes, kPages));
  } else {
    ::operator delete(data, alignment_of(bytes));
  }
}

}  // namespace popsr
