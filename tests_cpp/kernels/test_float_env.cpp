// The floating-point environment of kernels: the fast way of x86 and the portable one.
#include <doctest/doctest.h>

#include <cfenv>
#include <limits>
#include <type_traits>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/kernels/float_env.h"
#include "support/run_at_once.h"

namespace popsr::kernels {
namespace {

/// 1 + ulp / 4 in the current mode, hidden from the compiler.
bool rounds_up() {
  const volatile double one = 1.0, quarter = std::numeric_limits<double>::epsilon() / 4;
  const volatile double sum = one + quarter;
  return sum > 1.0;
}

TEST_CASE_TEMPLATE("float environment: default inside, the caller's outside", Environment, FloatEnvironment,
                   PortableFloatEnvironment) {
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    CAPTURE(mode);
    REQUIRE(std::fesetround(mode) == 0);
    const bool before = rounds_up();
    {
      const Environment environment;
      CHECK_FALSE(rounds_up());
      const Environment nested;
      CHECK_FALSE(rounds_up());
    }
    const int after = std::fegetround();
    CHECK(rounds_up() == before);
    std::fesetround(FE_TONEAREST);
    CHECK(after == mode);
    CHECK(before == (mode == FE_UPWARD));
  }
}

#if defined(__SSE__)
TEST_CASE_TEMPLATE("float environment: subnormals are kept inside, flushed again outside", Environment,
                   FloatEnvironment, PortableFloatEnvironment) {
  constexpr unsigned kFlushing = 0x1f80U | 0x8040U, kControl = 0xffc0U;
  const volatile float least = std::numeric_limits<float>::denorm_min();
  const auto doubled = [&least] {
    const volatile float sum = least + least;
    return sum > 0;
  };
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(kFlushing);
  bool inside = false;
  {
    const Environment environment;
    inside = doubled();
  }
  const bool outside = doubled();
  const unsigned after = _mm_getcsr() & kControl;
  _mm_setcsr(saved);
  CHECK(inside);
  CHECK_FALSE(outside);
  CHECK(after == kFlushing);
}
#endif

TEST_CASE("float environment: threads of a pool start with the default one") {
  REQUIRE(std::fesetround(FE_UPWARD) == 0);
  std::vector<int> up(3, -1);
  {
    ThreadPool pool(3);
    run_at_once(pool, [&up](int part) { up[static_cast<std::size_t>(part)] = rounds_up() ? 1 : 0; });
  }
  std::fesetround(FE_TONEAREST);
  CHECK(up == std::vector<int>{1, 0, 0});  // part 0 runs on this thread, whose caller sees to it
}

}  // namespace
}  // namespace popsr::kernels
