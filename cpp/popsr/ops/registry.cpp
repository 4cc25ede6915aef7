#include "popsr/ops/registry.h"

#include <string_view>

namespace popsr {
namespace {

struct Family {
  std::string_view name;
  std::vector<OpDef> (*ops)();
};

constexpr Family kFamilies[] = {
#define POPSR_ROW(family) {#family, family##_ops},
#include "popsr/ops/families.def"
};

std::shared_ptr<const Registry> build_registry() {
  auto registry = std::make_shared<Registry>();
  for (const Family& family : kFamilies) {
    for (OpDef& def : family.ops()) {
      def.program.family = family.name;
      registry->add(std::move(def));
    }
  }
  return registry;
}

}  // namespace

std::shared_ptr<const Registry> default_registry() {
  static const std::shared_ptr<const Registry> registry = build_registry();
  return registry;
}

}  // namespace popsr
