// Runtimes and analyses that are wrong on purpose. A judge of bits that lets one of them pass is too weak.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "popsr/ir/op_def.h"
#include "popsr/kernels/contract/kernel_table.h"

namespace popsr::test {

struct Sabotage {
  std::string_view what;
  std::string_view op;
  void (*change)(OpDef&) = nullptr;                      ///< Change of that op's definition.
  void (*break_level)(kernels::KernelTable&) = nullptr;  ///< Or: the kernels of another level than the best.
};

std::span<const Sabotage> sabotages();
/// The product's registry, with the op changed.
std::shared_ptr<const Registry> sabotaged(const Sabotage& sabotage);

}  // namespace popsr::test
