// Handles of attributes: declaration, binding, reading, and named choices.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "support/program.h"

namespace popsr {
namespace {

using test::error_of;
using test::kVector;
using test::Program;

enum class Fill : std::uint8_t { kZeros, kOnes, kRamp };
constexpr Choice<Fill> kFills[] = {{"zeros", Fill::kZeros}, {"ones", Fill::kOnes}, {"ramp", Fill::kRamp}};
constexpr ChoiceAttr<Fill> kFill{"fill", kFills};
constexpr ChoiceAttr<Fill> kEdge{"edge", kFills};
constexpr Attr<double> kFactor{"factor"};
constexpr Attr<std::int64_t> kAxis{"axis"};
constexpr Attr<Shape> kShape{"shape"};

std::vector<OutputDef> infer(const InferContext& context) { return {{context.type(0)}}; }

std::shared_ptr<const Registry> with_filled() {
  auto registry = std::make_shared<Registry>(*default_registry());
  registry->add({.name = "filled",
                 .inputs = {{"t"}},
                 .attrs = {required(kFactor), optional(kAxis), optional(kShape, {2, 3}),
                           optional(kFill, Fill::kOnes), optional(kEdge)},
                 .infer = infer});
  return registry;
}

TEST_CASE("attributes: handles read what was given, and defaults") {
  Program p(1, with_filled());
  const TensorId t = p.input("t");
  const Op& plain = p.ir.op(p.emit("filled", {t}, {kFactor(0.5)}));
  CHECK(plain.get(kFactor) == 0.5);
  CHECK_FALSE(plain.find(kAxis));
  CHECK(plain.get(kShape) == Shape{2, 3});
  CHECK(plain.get(kFill) == Fill::kOnes);
  CHECK_FALSE(plain.find(kEdge));

  const Op& given = p.ir.op(
      p.emit("filled", {t}, {kFactor(2), kAxis(-1), kShape({}), kFill(Fill::kRamp), {"edge", "zeros"}}));
  CHECK(given.find(kAxis) == -1);
  CHECK(given.get(kShape).empty());
  CHECK(given.get(kFill) == Fill::kRamp);
  CHECK(given.find(kEdge) == Fill::kZeros);
  CHECK(std::get<std::string>(given.attribute("fill")) == "ramp");
}

TEST_CASE("attributes: a handle whose name is another string of the same text finds the attribute") {
  Program p(1, with_filled());
  const Op& op = p.ir.op(p.emit("filled", {p.input("t")}, {kFactor(0.5)}));
  const std::string text = "factor";
  CHECK(op.get(Attr<double>{text}) == 0.5);
  CHECK_THROWS_AS(op.get(Attr<double>{"factors"}), InternalError);
}

TEST_CASE("attributes: an unknown choice is refused with the choices") {
  Program p(1, with_filled());
  const TensorId t = p.input("t");
  for (const std::string name : {"fill", "edge"}) {
    CHECK(error_of<AttributeValueError>([&] {
            p.emit("filled", {t}, {kFactor(1), {name, "Ones"}});
          }) == "filled: unknown " + name + ", got 'Ones', expected one of 'zeros', 'ones', 'ramp'");
  }
  CHECK(error_of<AttributeValueError>([&] {
          p.emit("filled", {t}, {kFactor(1), {"fill", 3.0}});
        }) == "filled: attribute fill has the wrong type, got 3");
}

TEST_CASE("attributes: the choices of all ops are different, and hold their default") {
  const auto registry = default_registry();
  int seen = 0;
  for (const std::string_view name : registry->names()) {
    for (const AttrDef& attr : registry->at(name).attrs) {
      if (attr.choices.empty()) continue;
      ++seen;
      CAPTURE(name);
      CAPTURE(attr.name);
      CHECK(attr.type == AttrType::kString);
      for (std::size_t i = 0; i < attr.choices.size(); ++i) {
        CHECK(std::ranges::find(attr.choices, attr.choices[i]) - attr.choices.begin() ==
              static_cast<std::ptrdiff_t>(i));
      }
      const auto* const text = std::get_if<std::string>(&attr.default_value);
      CHECK((text == nullptr || std::ranges::find(attr.choices, *text) != attr.choices.end()));
    }
  }
  CHECK(seen >= 15);
}

}  // namespace
}  // namespace popsr
