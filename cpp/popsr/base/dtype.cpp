#include "popsr/base/dtype.h"

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

}  // namespace popsr
