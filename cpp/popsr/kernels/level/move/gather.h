// Copies of strided views to contiguous buffers; see KernelTable::gather_strided.
#pragma once

#include <cstdint>

namespace popsr::kernels {

void gather_strided(void* out, const void* in, int rank, const std::int64_t* shape,
                    const std::int64_t* strides, int element_size);

}  // namespace popsr::kernels
