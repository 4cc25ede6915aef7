#include "popsr/base/dtype.h"

#include <cstring>
#include <string>

#include "popsr/base/error.h"

namespace popsr {

DType dtype_from_name(std::string_view name) {
  std::string accepted;
  for (const DTypeInfo& each : kDTypes) {
    if (each.name == name) return each.dtype;
    accepted += accepted.empty() ? std::string(each.name) : ", " + std::string(each.name);
  }
  raise<NameError>("dtype: unknown name, got '{}', expected one of {}", name, accepted);
}

std::int64_t read_integer(const std::byte* data, DType dtype) {
  const std::size_t size = size_of(dtype);
  std::uint64_t bits = 0;
  std::memcpy(&bits, data, size);  // little endian
  const std::size_t unused = 64 - 8 * size;
  const auto top = static_cast<std::int64_t>(bits << unused);
  return info(dtype).kind == DTypeKind::kInt ? top >> unused : static_cast<std::int64_t>(bits);
}

}  // namespace popsr
