// Tools of random programs: decisions read from a record, graphs inside graphs, tensors that
// come into a graph when they are needed there.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fuzz/programs/random_program.h"

namespace popsr::test {

class RandomBuilder {
 public:
  RandomBuilder(Program& p, const Recipe& recipe, const AcceptGrouping& accept);

 protected:
  enum Pool : std::uint8_t { kValues, kConditions, kOffsets, kSeeds, kPools };
  static const TensorType kCondition, kOffset, kSeed;

  /// A graph that is being written.
  struct Frame {
    enum class Kind : std::uint8_t { kMain, kCall, kRepeat, kWhile, kThen, kElse };
    Kind kind = Kind::kMain;
    GraphId graph = kMainGraph;
    std::array<std::vector<TensorId>, kPools> pools = {};
    std::vector<TensorId> arguments = {};  ///< Arguments for the graph's inputs, in the outer graph.
    std::set<TensorId> written = {};       ///< Storages.
    std::size_t carried = 0;
    TensorId condition = kNone;
    std::int64_t count = 0;
    bool pure = false;  ///< Writes nothing, so that it can be differentiated.
  };

  /// True if both tensors have one dtype, shape and meta shape.
  bool same_type(TensorId a, TensorId b) const;
  const TensorType& type_of(TensorId t) const { return p_.ir.tensor(t).type; }
  std::int64_t elements_of(TensorId t) const { return num_elements(type_of(t).shape); }
  /// True if the op takes such values as its first input.
  bool accepts(std::string_view op, DType dtype) const;

  // Decisions
  std::size_t byte() { return next_ < record_->size() ? (*record_)[next_++] : 0; }
  std::size_t below(std::size_t end) { return end == 0 ? 0 : byte() % end; }
  /// One of the recipe's types.
  const TensorType& any_type() { return types_[types_.size() == 1 ? 0 : below(types_.size())]; }

  // Tensors
  Frame& frame() { return frames_.back(); }
  Ir& ir() { return p_.ir; }
  /// Makes a tensor of the frame outside `level` one of the frame at `level`. By value or by reference is
  /// decided when the graph is called.
  TensorId capture(TensorId t, std::size_t level);
  /// The tensor `back` places before the last one, over all frames; captured as far as it takes.
  TensorId at_back(Pool pool, std::size_t back);
  std::size_t available(Pool pool) const;
  TensorId any();
  /// One that the op takes as its first input.
  TensorId any_for(std::string_view op);
  /// A tensor of the type of `t`: itself when no try hits another.
  TensorId like(TensorId t) { return like(t, below(available(kValues))); }
  TensorId like(TensorId t, std::size_t back);
  /// at_back without capturing.
  TensorId peek(Pool pool, std::size_t back) const;
  /// A value as remote entries are.
  TensorId any_vector();
  TensorId add_value(TensorId t, Pool pool = kValues);
  /// Emits the op and keeps its outputs, and says whether it could: operands that do not fit are refused.
  bool attempt(std::string_view op, const std::vector<TensorId>& inputs, const Attrs& attrs = {});
  /// Stores the value for the host, as it is now.
  void store(TensorId t);
  /// Loads a stream. The second stream of each type with a row per replica is declared equal, the third has
  /// groups.
  TensorId load(StreamMode mode, const TensorType& type, Pool pool);
  /// Variables are tensors of the main graph.
  TensorId variable(const TensorType& type, Pool pool);
  TensorId place_in_main(TensorId t, Pool pool);
  TensorId source(std::size_t kind);
  TensorId shard();
  TensorId condition();
  /// Condition of the innermost branch that is open.
  TensorId condition_around();
  TensorId offset();
  TensorId seed();
  TensorId place_of_replica();

  // Groupings
  /// Inside a branch mostly groups that do not part there, lest every run ends at the first exchange.
  ReplicaGrouping grouping();
  ReplicaGrouping draw_grouping(std::size_t kind, std::size_t size_byte, std::size_t seed);
  static ReplicaGrouping shuffled(std::int64_t n, std::int64_t size, std::size_t seed);

  Program& p_;
  const AcceptGrouping& accept_;
  bool control_flow_, every_op_, views_;
  std::size_t stores_;
  std::vector<TensorType> types_;
  const Recipe::Record* record_ = nullptr;
  std::size_t next_ = 0;
  std::vector<Frame> frames_;
  std::map<std::tuple<StreamMode, Pool, std::size_t>, std::vector<StreamId>> streams_;
  std::set<TensorId> loaded_, stored_;
  std::map<TensorId, ReplicaGrouping> equal_within_;  ///< Variables: who shares a value at first.
};

}  // namespace popsr::test
