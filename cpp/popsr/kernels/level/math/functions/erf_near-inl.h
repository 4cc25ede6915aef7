// The error function of doubles near 0: erf.cpp says how it is approximated.
#pragma once

#include "popsr/kernels/level/common-inl.h"

namespace popsr::kernels {
namespace {

/// erf(x) / x - 1 of w = x^2 - 1/2, |w| <= 1/2: terms of alternating signs cancel less around the middle.
[[gnu::always_inline]] inline double erf_near(double w) {
  double q = -0x1.acd35a261d10fp-31;
  q = q * w + 0x1.441793949e83fp-27;
  q = q * w - 0x1.bf8d0a9a84fbbp-24;
  q = q * w + 0x1.1ad510e8dcc04p-20;
  q = q * w - 0x1.429e93f755076p-17;
  q = q * w + 0x1.4866392f3c27ap-14;
  q = q * w - 0x1.263991b7fb873p-11;
  q = q * w + 0x1.c82aa249a98b0p-9;
  q = q * w - 0x1.2b902b7b2f2b8p-6;
  q = q * w + 0x1.454368017b0d5p-4;
  q = q * w - 0x1.1fd16292151fdp-2;
  return q * w - 0x1.1ae14dc34815bp-5;
}

}  // namespace
}  // namespace popsr::kernels
