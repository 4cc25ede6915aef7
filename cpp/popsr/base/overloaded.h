// Function objects combined from several lambdas, for std::visit.
#pragma once

namespace popsr {

template <class... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};

}  // namespace popsr
