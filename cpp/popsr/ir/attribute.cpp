#include "popsr/ir/attribute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace popsr {

AttrDef required(std::string_view name, AttrType type) { return {name, type}; }

AttrDef optional(std::string_view name, AttrType type, Attribute default_value) {
  return {name, type, true, std::move(default_value)};
}

AttrDef internal(std::string_view name, AttrType type, Attribute default_value) {
  return {name, type, true, std::move(default_value), true};
}

std::string to_string(const Attribute& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(bool v) const { return v ? "True" : "False"; }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(const std::string& v) const { return fmt::format("'{}'", v); }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(const std::vector<double>& v) const {
      return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(DType v) const { return std::string(info(v).name); }
    std::string operator()(GraphId v) const { return fmt::format("graph {}", v.value); }
    std::string operator()(StreamRef v) const { return fmt::format("stream {}", v.id); }
    std::string operator()(RemoteRef v) const { return fmt::format("buffer {}", v.id + 1); }
    std::string operator()(const ReplicaGrouping& v) const { return v.to_string(); }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace popsr
