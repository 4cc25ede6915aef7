// Convolutions with few output positions: the steps as rows of dense columns, one column for each output
// position of several samples.
//
// Images need no copy per step; but if lines are short, vectors contain as many positions between lines as
// in them, and a sample fills no panel of the product. Then each step's positions are copied, which costs as
// much as a product with a few more rows. The chains are the same.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "popsr/ops/nn/conv/sweep.h"

namespace popsr {

/// Layout of matrices [step][sample][position], one for each phase.
struct ConvColumns {
  std::int64_t samples = 0;  ///< Number of samples at a time; 0: images are swept without columns.
  std::vector<std::int64_t> begin, pitch;         ///< Begin and row pitch of the matrix of each phase.
  std::vector<std::vector<std::int64_t>> offset;  ///< Offsets of each phase's steps in its matrix.
  std::int64_t elements = 0;                      ///< Elements of all phases.
};

/// Column layout, with samples = 0 if columns do not pay.
ConvColumns conv_columns(const ConvSweep& sweep, std::int64_t element_size);

/// Copies to[i] = from[i] for i < n, in registers if n is small.
template <class T>
void copy_run(T* to, const T* from, std::int64_t n) {
  switch (n) {
    case 1:
      *to = *from;
      return;
    case 2:
      std::memcpy(to, from, 2 * sizeof(T));
      return;
    case 4:
      std::memcpy(to, from, 4 * sizeof(T));
      return;
    case 7:
      std::memcpy(to, from, 7 * sizeof(T));
      return;
    case 8:
      std::memcpy(to, from, 8 * sizeof(T));
      return;
    case 16:
      std::memcpy(to, from, 16 * sizeof(T));
      return;
    default:
      std::copy_n(from, n, to);
  }
}

/// Copies the columns of one sample from its image: to[step * pitch + position].
template <class T>
void fill_columns(const ConvPhase& phase, const Spatial& count, const Spatial& image_pitch, const T* image,
                  std::int64_t pitch, T* to) {
  for (const std::int64_t offset : phase.offset) {
    const T* const from = image + offset;
    T* at = to;
    for (std::int64_t x = 0; x < count[0]; ++x)
      for (std::int64_t y = 0; y < count[1]; ++y, at += count[2])
        copy_run(at, from + x * image_pitch[0] + y * image_pitch[1], count[2]);
    to += pitch;
  }
}

}  // namespace popsr
