// The work of random tests: less under sanitizers, which make each round many times slower.
#pragma once

// Functions of the libraries of sanitizers: null where these are not linked.
extern "C" __attribute__((weak)) void __asan_init();
extern "C" __attribute__((weak)) void __tsan_init();

namespace popsr::test {

/// The rounds of a random test, or a count that is expected after them: an eighth under sanitizers.
/// Known when the program runs: the objects of tests are the same with sanitizers and without.
inline int rounds(int all) { return __asan_init != nullptr || __tsan_init != nullptr ? all / 8 : all; }

}  // namespace popsr::test
