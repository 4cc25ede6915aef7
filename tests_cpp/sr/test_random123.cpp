// The cipher against Random123's own ARS, where Debian's librandom123-dev is installed and the compiler has
// AES.
#if defined(__AES__) && __has_include(<Random123/ars.h>)

#include <Random123/ars.h>
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <string>

#include "popsr/kernels/loader.h"

using namespace popsr::kernels;

namespace {

NoiseKey random123(std::uint64_t counter_lo, std::uint64_t counter_hi, NoiseKey key) {
  const std::uint64_t words[2][2] = {{counter_lo, counter_hi}, {key.lo, key.hi}};
  ars4x32_ctr_t counter;
  ars4x32_key_t user_key;
  std::memcpy(counter.v, words[0], sizeof(words[0]));
  std::memcpy(user_key.v, words[1], sizeof(words[1]));
  const ars4x32_ctr_t out = ars4x32_R(7, counter, user_key);
  NoiseKey result;
  std::memcpy(&result.lo, out.v, sizeof(result.lo));
  std::memcpy(&result.hi, out.v + 2, sizeof(result.hi));
  return result;
}

}  // namespace

TEST_CASE("sr: ars7 equals Random123 on random keys and counters") {
  const std::vector<std::string> levels = available_levels();
  if (levels.back() == "v2") return;  // its rounds need the CPU's AES
  std::mt19937_64 random(40);
  for (int i = 0; i < 20000; ++i) {
    const NoiseKey key = {random(), random()};
    const std::uint64_t counter_lo = random();
    const std::uint64_t counter_hi = random();
    const NoiseKey expect = random123(counter_lo, counter_hi, key);
    for (const std::string& level : levels) {
      const NoiseKey got = kernel_table(level).ars7(counter_lo, counter_hi, key);
      REQUIRE(got.lo == expect.lo);
      REQUIRE(got.hi == expect.hi);
    }
  }
}

#endif
