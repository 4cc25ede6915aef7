// Slabs of all sizes: aligned zeros, of which large ones take memory only as they are written.
#include "popsr/base/containers/slab.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "support/effort.h"

using namespace popsr;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Number of whole pages of a slab that are in memory.
std::size_t resident_pages(const Slab& slab) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> is_resident(slab.size() / page);
  REQUIRE(::mincore(slab.data(), is_resident.size() * page, is_resident.data()) == 0);
  return static_cast<std::size_t>(
      std::ranges::count_if(is_resident, [](unsigned char each) { return each & 1; }));
}

}  // namespace

TEST_CASE("slab: aligned zeros, also in memory that was written before") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, kMiB - 1, kMiB, kMiB + 1,
                                  4 * kMiB - 1, 4 * kMiB, 4 * kMiB + 1, 6 * kMiB + 4097}) {
    CAPTURE(bytes);
    for (int turn = 0; turn < 2; ++turn) {
      const Slab slab(bytes);
      CHECK(slab.size() == bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(slab.data()) % Slab::kAlignment == 0);
      CHECK(
          std::all_of(slab.data(), slab.data() + bytes, [](std::byte each) { return each == std::byte{0}; }));
      std::fill_n(slab.data(), bytes, std::byte{0xff});
    }
  }
}

TEST_CASE("slab: large ones take memory as they are written, in large pages") {
  if (__asan_init != nullptr) return;  // all slabs are its allocator's, which writes them
  const Slab slab(64 * kMiB);
  CHECK(reinterpret_cast<std::uintptr_t>(slab.data()) % (2 * kMiB) == 0);
  CHECK(resident_pages(slab) == 0);
  slab.data()[20 * kMiB] = std::byte{1};
  CHECK(resident_pages(slab) > 0);
  CHECK(resident_pages(slab) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) <= 2 * kMiB);
}

TEST_CASE("slab: more than there can be is an error") {
  for (const std::size_t bytes : {std::size_t{1} << 62, std::numeric_limits<std::size_t>::max() - 64}) {
    CHECK_THROWS_AS(Slab{bytes}, std::bad_alloc);
  }
}
