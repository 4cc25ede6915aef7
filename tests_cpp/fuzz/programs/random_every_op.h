// Steps of random programs that only the judge of bits knows: views, products, random numbers, dtypes that
// change, and whatever else an op of the registry computes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fuzz/programs/random_ops.h"

namespace popsr::test {

class RandomEveryOp : public RandomOps {
 public:
  using RandomOps::RandomOps;

 protected:
  /// An op that writes nothing.
  void compute_anything();
  /// An op that writes in place.
  void modify_anything();
  /// A view, which may be written later.
  void view();

 private:
  void elementwise();
  void along_axes();
  void rearrange();
  void product();
  void several();
  TensorId any_matrix();
  void draw();
  void change_type();
  void average();
  DType float8();
};

}  // namespace popsr::test
