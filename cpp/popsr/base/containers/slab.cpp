#include "popsr/base/containers/slab.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "popsr/base/no_memory.h"

namespace popsr {
namespace {

// Slabs from this size on lie in pages of 2 MiB where the system has them: products step through the rows of
// large matrices, each of which is on a page of its own otherwise.
constexpr std::size_t kHugePage = std::size_t{1} << 21, kHugeSlab = std::size_t{1} << 22;

std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes >= kHugeSlab ? kHugePage : Slab::kAlignment};
}

std::byte* allocate(std::size_t bytes) {
  void* const data = ::operator new(std::max(bytes, Slab::kAlignment), alignment_of(bytes), std::nothrow);
  if (data == nullptr) throw NoMemory("session", bytes);
  if (bytes >= kHugeSlab) ::madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // speed only
  return static_cast<std::byte*>(data);
}

}  // namespace

Slab::Slab(std::size_t bytes, Fill fill) : size_(bytes), data_(allocate(bytes), Free{bytes}) {
  if (fill == Fill::kZeros) std::memset(data_.get(), 0, bytes);
}

void Slab::Free::operator()(std::byte* data) const { ::operator delete(data, alignment_of(bytes)); }

}  // namespace popsr
