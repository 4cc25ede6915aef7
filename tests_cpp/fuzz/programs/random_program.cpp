#include "fuzz/programs/random_program.h"

#include <algorithm>

#include "fuzz/programs/random_layers.h"
#include "popsr/base/error.h"
#include "popsr/transform/merge.h"

namespace popsr::test {
namespace {

using Record = Recipe::Record;

/// Executes the records.
class Generator : RandomLayers {
 public:
  using RandomLayers::RandomLayers;

  void step(const Record& record) {
    record_ = &record;
    next_ = 0;
    const std::size_t kind = below(256);
    p_.sequence = SequenceMode::kUnordered;
    if (!control_flow_) return kind < 64 ? modify(kind) : compute(below(kComputations));
    p_.allow_stochastic = !every_op_ || record.back() % 16 != 0;
    tolerantly([&] { step_with_graphs(kind); });
  }

  void finish() {
    static constexpr Record kZeros = {};
    record_ = &kZeros;
    while (frames_.size() > 1) {
      next_ = 0;
      tolerantly([&] { close(); });
    }
    if (stores_ == 0) return;
    const std::vector<TensorId> values = frame().pools[kValues];
    for (std::size_t back = 0; back < std::min<std::size_t>(values.size(), kLast); ++back) {
      const TensorId t = values[values.size() - 1 - back];
      if (!stored_.contains(t)) store(t);
    }
  }

 private:
  static constexpr std::size_t kLast = 5;  ///< Number of values that are stored at the end.

  /// Among all ops operands may not fit: then nothing is added, or an op that is valid.
  template <class Body>
  void tolerantly(const Body& body) {
    if (!every_op_) return body();
    try {
      body();
    } catch (const InternalError&) {
      throw;
    } catch (const Error&) {
    }
  }

  void step_with_graphs(std::size_t kind) {
    if (every_op_) return step_with_every_op(kind);
    if (views_ && kind < 24) return view_part();
    if (kind < 128) return compute(below(kComputations));
    if (kind < 168) return modify(kind);
    if (kind < 200) return close();
    if (kind < 216) return call_again();
    open(kind - 216);
  }

  void step_with_every_op(std::size_t kind) {
    if (kind < 70) return compute_anything();
    if (kind < 120) return compute(below(kComputations));
    if (kind < 180) {
      if (frame().pure) return compute_anything();
      if (kind < 140) return view();
      if (kind < 160) return modify_anything();
      return modify(kind);
    }
    if (kind < 200) return close();
    if (kind < 212) return call_again();
    if (kind < 228) return layer();
    open((kind - 228) * 10 / 7);
  }
};

// Axes

/// Now and then so big that threads share the work, where such programs can be afforded.
Shape random_shape(std::uint64_t bits, bool may_be_big) {
  static const Shape kShapes[] = {{4}, {4}, {2, 2}, {4}, {}, {1}, {0}, {7}, {3, 3}, {2, 1, 3}, {0, 2}, {33}};
  static const Shape kBig[] = {{4200}, {3, 1030}, {40, 40}, {130, 130}};
  if (may_be_big && bits % 64 == 0) return kBig[(bits >> 6) % std::size(kBig)];
  return kShapes[(bits >> 8) % std::size(kShapes)];
}

TensorType random_type(std::mt19937_64& random, bool narrow, bool may_be_big) {
  static constexpr DType kNarrow[] = {DType::kBFloat16, DType::kFloat16, DType::kBFloat16, DType::kFloat8_143,
                                      DType::kFloat8E4M3FN};
  static constexpr DType kTypes[] = {DType::kFloat32,    DType::kFloat32, DType::kFloat32,
                                     DType::kFloat64,    DType::kInt32,   DType::kBFloat16,
                                     DType::kInt8,       DType::kUInt16,  DType::kFloat16,
                                     DType::kFloat8_152, DType::kInt64,   DType::kFloat8E5M2};
  const std::uint64_t bits = random();
  const DType dtype =
      narrow ? kNarrow[(bits & 0xff) % std::size(kNarrow)] : kTypes[(bits & 0xff) % std::size(kTypes)];
  TensorType type{dtype, random_shape(bits >> 8, may_be_big)};
  if (dtype == DType::kInt32 && type.shape.empty()) type.shape = {1};  // not to be taken for an offset
  return type;
}

}  // namespace

std::string_view to_string(RoundingMode mode) {
  static constexpr std::string_view kNames[] = {"to nearest", "identical", "partition", "differing",
                                                "popart"};
  return kNames[static_cast<std::size_t>(mode)];
}

Recipe random_recipe(std::mt19937_64& random, std::int64_t replicas, Flavour flavour, std::size_t records) {
  Recipe recipe{.replicas = replicas, .flavour = flavour, .records = std::vector<Record>(records)};
  const std::uint64_t axes = random();
  recipe.rounding = static_cast<RoundingMode>((axes & 0xff) % kNumRoundingModes);
  recipe.views = flavour == Flavour::kControlFlow && (axes >> 32 & 1) != 0;
  const bool narrow = recipe.rounding != RoundingMode::kNearest && (axes >> 8 & 3) != 0;
  // Many programs are of the plainest types, where most can happen.
  const bool every_op = flavour == Flavour::kEveryOp;
  TensorType plain{narrow ? DType::kBFloat16 : DType::kFloat32, kVector.shape};
  if (every_op && (axes >> 15 & 1) != 0) plain.shape = {3, 3};
  recipe.types = {(axes >> 16 & 1) != 0 ? plain : random_type(random, narrow, every_op)};
  for (std::uint64_t more = axes >> 24 & 3; more > 1; --more) {
    recipe.types.push_back(random_type(random, narrow, every_op));
  }
  for (Record& record : recipe.records) {
    std::uint64_t bits = random();
    for (std::size_t i = 0; i < record.size(); ++i, bits >>= 8) {
      if (i == 8) bits = random();
      record[i] = static_cast<std::uint8_t>(bits);
    }
  }
  return recipe;
}

std::int64_t random_replicas(std::mt19937_64& random) {
  const std::uint64_t draw = random() % 68;
  if (draw >= 64) return draw % 2 == 0 ? 48 : 64;
  return static_cast<std::int64_t>(1 + draw % 16);
}

namespace {

/// Rules of the mode; nullopt when it refuses the program.
std::optional<SeedRules> rules_of(const Ir& ir, RoundingMode mode) {
  switch (mode) {
    case RoundingMode::kNearest:
      return SeedRules();
    case RoundingMode::kIdentical:
      return SeedRules(SeedRule::kIdentical);
    case RoundingMode::kPartition:
      return SeedRules(SeedRule::kPartition);
    case RoundingMode::kDiffering:
      return SeedRules(SeedRule::kDiffering);
    case RoundingMode::kPopart:
      break;
  }
  try {
    return SeedRules::of_mode(ir, "popart");
  } catch (const GraphError&) {
    return std::nullopt;  // a graph that the reference does not look at
  }
}

}  // namespace

bool grow(const Recipe& recipe, Program& p, const AcceptGrouping& accept, const AfterStep& after) {
  Generator generator(p, recipe, accept);
  for (const Record& record : recipe.records) {
    generator.step(record);
    if (after) after();
  }
  generator.finish();
  if (recipe.merges) {
    merge_collectives(p.ir);
    merge_exchange(p.ir);
  }
  const std::optional<SeedRules> rules = rules_of(p.ir, recipe.rounding);
  p.seeds = rules.value_or(SeedRules());
  return rules.has_value();
}

}  // namespace popsr::test
