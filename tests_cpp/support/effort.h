// The work of random tests: less under sanitizers, which make each round many times slower.
#pragma once

namespace popsr::test {

/// The rounds of a random test, or a count that is expected after them: an eighth under sanitizers.
constexpr int rounds(int all) {
#ifdef POPSR_SANITIZED
  return all / 8;
#else
  return all;
#endif
}

}  // namespace popsr::test
