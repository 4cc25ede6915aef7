#include "fuzz/programs/random_builder.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "popsr/base/error.h"
#include "popsr/ir/op_def.h"
#include "popsr/transform/graph_editor.h"

namespace popsr::test {

const TensorType RandomBuilder::kCondition{DType::kBool, {}}, RandomBuilder::kOffset{DType::kInt32, {}},
    RandomBuilder::kSeed{DType::kUInt32, {2}};

RandomBuilder::RandomBuilder(Program& p, const Recipe& recipe, const AcceptGrouping& accept)
    : p_(p),
      accept_(accept),
      control_flow_(recipe.flavour != Flavour::kStraightLine),
      every_op_(recipe.flavour == Flavour::kEveryOp),
      views_(recipe.views),
      stores_(recipe.stores),
      types_(recipe.types) {
  frames_.emplace_back();
}

bool RandomBuilder::same_type(TensorId a, TensorId b) const {
  return p_.ir.tensor(a).type == p_.ir.tensor(b).type &&
         p_.ir.tensor(a).meta_shape == p_.ir.tensor(b).meta_shape;
}

bool RandomBuilder::accepts(std::string_view op, DType dtype) const {
  return p_.ir.registry().at(op).inputs[0].dtypes.contains(dtype);
}

// Tensors

TensorId RandomBuilder::capture(TensorId t, std::size_t level) {
  Frame& inner = frames_[level];
  if (const auto it = std::ranges::find(inner.arguments, t); it != inner.arguments.end()) {
    const auto at = it - inner.arguments.begin();
    return ir().graph(inner.graph).inputs[static_cast<std::size_t>(at)];
  }
  const Tensor& outer = ir().tensor(t);
  inner.arguments.push_back(t);
  const TensorId input = ir().add_input(inner.graph, "in", outer.type, outer.meta_shape);
  if (const auto it = equal_within_.find(t); it != equal_within_.end())
    equal_within_.emplace(input, it->second);
  return input;
}

TensorId RandomBuilder::at_back(Pool pool, std::size_t back) {
  std::size_t level = frames_.size();
  while (level-- > 0) {
    const std::vector<TensorId>& own = frames_[level].pools[pool];
    if (back >= own.size()) {
      back -= own.size();
      continue;
    }
    TensorId t = own[own.size() - 1 - back];
    while (++level < frames_.size()) t = capture(t, level);
    return t;
  }
  return kNone;
}

std::size_t RandomBuilder::available(Pool pool) const {
  std::size_t all = 0;
  for (const Frame& each : frames_) all += each.pools[pool].size();
  return all;
}

TensorId RandomBuilder::any() {
  if (available(kValues) == 0) return source(byte());
  return at_back(kValues, below(available(kValues)));
}

TensorId RandomBuilder::any_for(std::string_view op) {
  const std::size_t all = available(kValues), back = below(all);
  for (std::size_t tries = 0; tries < all; ++tries) {
    const std::size_t at = (back + tries) % all;
    if (accepts(op, type_of(peek(kValues, at)).dtype)) return at_back(kValues, at);
  }
  for (const TensorType& type : types_) {
    if (accepts(op, type.dtype)) return load(StreamMode::kReplicate, type, kValues);
  }
  return load(StreamMode::kReplicate, kVector, kValues);
}

TensorId RandomBuilder::like(TensorId t, std::size_t back) {
  const std::size_t all = available(kValues);
  for (std::size_t tries = 0; tries < std::min<std::size_t>(all, 6); ++tries) {
    const TensorId other = peek(kValues, (back + tries) % all);
    if (same_type(t, other)) return at_back(kValues, (back + tries) % all);
  }
  return t;
}

TensorId RandomBuilder::peek(Pool pool, std::size_t back) const {
  for (std::size_t level = frames_.size(); level-- > 0;) {
    const std::vector<TensorId>& own = frames_[level].pools[pool];
    if (back < own.size()) return own[own.size() - 1 - back];
    back -= own.size();
  }
  return kNone;
}

TensorId RandomBuilder::any_vector() {
  const std::size_t all = available(kValues), back = below(all);
  for (std::size_t tries = 0; tries < all; ++tries) {
    const TensorId t = peek(kValues, (back + tries) % all);
    if (ir().tensor(t).type == types_[0] && ir().tensor(t).meta_shape.empty()) {
      return at_back(kValues, (back + tries) % all);
    }
  }
  return load(StreamMode::kReplicate, types_[0], kValues);
}

TensorId RandomBuilder::add_value(TensorId t, Pool pool) {
  frame().pools[pool].push_back(t);
  // The tensor's number decides, not the record: so a program with fewer stores differs in nothing else.
  if (pool == kValues && (t.value * 2654435761U >> 16 & 7U) < stores_) store(t);
  return t;
}

bool RandomBuilder::attempt(std::string_view op, const std::vector<TensorId>& inputs, const Attrs& attrs) {
  OpId made = kNone;
  try {
    made = p_.emit(op, inputs, attrs);
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
  for (const TensorId t : ir().op(made).outputs) add_value(t);
  return true;
}

void RandomBuilder::store(TensorId t) {
  const StreamId stream = ir().add_stream("out", type_of(t), false, StreamMode::kReplicate);
  const SequenceMode before = std::exchange(p_.sequence, SequenceMode::kUnordered);
  p_.emit("host_store", {t}, {{"d2h_stream", stream}});
  p_.sequence = before;
  stored_.insert(t);
}

TensorId RandomBuilder::load(StreamMode mode, const TensorType& type, Pool pool) {
  const auto at = static_cast<std::size_t>(std::ranges::find(types_, type) - types_.begin());
  std::vector<StreamId>& known = streams_[{mode, pool, at}];
  if (known.empty() || (known.size() < 3 && below(2) == 1)) {
    const bool own = mode == StreamMode::kReplicate;
    const StreamMode made = own && known.size() == 1   ? StreamMode::kEqual
                            : own && known.size() == 2 ? StreamMode::kGroups
                                                       : mode;
    std::optional<ReplicaGrouping> groups;
    if (made == StreamMode::kGroups) groups = grouping();
    known.push_back(ir().add_stream("stream", type, true, made, {}, groups));
  }
  const StreamId stream = known[below(known.size())];
  const TensorId t = p_("host_load", {}, {}, {{"h2d_stream", stream}});
  if (pool == kValues) loaded_.insert(t);
  return add_value(t, pool);
}

TensorId RandomBuilder::variable(const TensorType& type, Pool pool) {
  const ReplicaGrouping groups = grouping();
  const TensorId t = p_.variable("w", groups, type);
  equal_within_.emplace(t, groups);
  return place_in_main(t, pool);
}

TensorId RandomBuilder::place_in_main(TensorId t, Pool pool) {
  frames_[0].pools[pool].push_back(t);
  for (std::size_t level = 1; level < frames_.size(); ++level) t = capture(t, level);
  return t;
}

TensorId RandomBuilder::source(std::size_t kind) {
  switch (kind % 8) {
    case 0:
    case 1:
    case 2:
      return load(StreamMode::kReplicate, any_type(), kValues);
    case 3:
      return load(StreamMode::kBroadcast, any_type(), kValues);
    case 4:
      if (control_flow_) return shard();
      [[fallthrough]];
    case 5:
    case 6:
      return variable(any_type(), kValues);
    default:
      const TensorType& type = any_type();
      return add_value(p_("init", {}, {},
                          {{"shape", type.shape},
                           {"dtype", type.dtype},
                           {"init_type", std::string(below(2) == 0 ? "zero" : "undef")}}));
  }
}

TensorId RandomBuilder::shard() {
  const ReplicaGrouping groups = grouping();
  const TensorId whole = p_.variable("w", groups, types_[0]);
  std::int64_t over = groups.group_size();
  while (over > 1 && (groups.group_size() % over != 0 || below(2) == 1)) --over;
  return place_in_main(GraphEditor(ir()).add_shard(whole, over, "shard"), kValues);
}

TensorId RandomBuilder::condition() {
  const std::size_t all = available(kConditions);
  switch (below(8)) {
    case 0:
      return load(StreamMode::kReplicate, kCondition, kConditions);
    case 1:
    case 2:
      return variable(kCondition, kConditions);
    case 3:
      return add_value(p_("cast", {place_of_replica()}, {}, {{"data_type", DType::kBool}}), kConditions);
    case 4:
      return load(StreamMode::kBroadcast, kCondition, kConditions);
    case 5:
      if (all == 0) return variable(kCondition, kConditions);
      return add_value(p_("replicated_all_reduce", {at_back(kConditions, below(all))}, {},
                          {{"op", std::string("or")}, {"group", grouping()}}),
                       kConditions);
    case 6:
      return condition_around();
    default:
      if (all == 0) return variable(kCondition, kConditions);
      return at_back(kConditions, below(all));
  }
}

TensorId RandomBuilder::condition_around() {
  for (std::size_t level = frames_.size(); level-- > 1;) {
    TensorId t = frames_[level].condition;
    if (t == kNone) continue;
    while (level < frames_.size()) t = capture(t, level++);
    return t;
  }
  return variable(kCondition, kConditions);
}

TensorId RandomBuilder::offset() {
  const std::size_t all = available(kOffsets);
  switch (below(4)) {
    case 0:
      return load(StreamMode::kReplicate, kOffset, kOffsets);
    case 1:
      return load(StreamMode::kBroadcast, kOffset, kOffsets);
    case 2: {
      TensorId place = p_("cast", {place_of_replica()}, {}, {{"data_type", kOffset.dtype}});
      // There are two entries: a program in which most runs end with an error shows little.
      if (every_op_) place = p_("increment_mod", {place}, {}, {{"increment", 0.0}, {"modulus", 2.0}});
      return add_value(place, kOffsets);
    }
    default:
      if (all == 0) return load(StreamMode::kReplicate, kOffset, kOffsets);
      return at_back(kOffsets, below(all));
  }
}

TensorId RandomBuilder::seed() {
  const std::size_t all = available(kSeeds);
  switch (below(4)) {
    case 0:
      return load(StreamMode::kReplicate, kSeed, kSeeds);
    case 1:
      return load(StreamMode::kBroadcast, kSeed, kSeeds);
    case 2:
      return variable(kSeed, kSeeds);
    default:
      if (all == 0) return variable(kSeed, kSeeds);
      return at_back(kSeeds, below(all));
  }
}

TensorId RandomBuilder::place_of_replica() {
  return p_("replica_index", {}, {},
            {{"group", grouping()}, {"what", std::string(below(2) == 0 ? "index" : "group")}});
}

// Groupings

ReplicaGrouping RandomBuilder::grouping() {
  const std::size_t kind = byte(), size = byte(), seed = byte();
  if (kind % 8 != 0) {
    for (std::size_t level = frames_.size(); level-- > 1;) {
      const Frame& branch = frames_[level];
      if (branch.condition == kNone) continue;
      const auto it = equal_within_.find(branch.condition);
      return it == equal_within_.end() ? p_.groups(1, 1) : it->second;
    }
  }
  ReplicaGrouping groups = draw_grouping(kind, size, seed);
  return !accept_ || accept_(groups) ? groups : p_.groups(1, 1);
}

ReplicaGrouping RandomBuilder::draw_grouping(std::size_t kind, std::size_t size_byte, std::size_t seed) {
  const auto n = ir().replication();
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = n; d >= 1; --d) {
    if (n % d == 0) divisors.push_back(d);
  }
  const std::int64_t size = divisors[size_byte % divisors.size()];
  if (kind % 3 == 2) return shuffled(n, size, seed);
  std::vector<std::int64_t> strides;
  for (std::int64_t d = 1; d * size <= n; ++d) {
    if (n % (d * size) == 0) strides.push_back(d);
  }
  return p_.groups(strides[seed % strides.size()], size);
}

ReplicaGrouping RandomBuilder::shuffled(std::int64_t n, std::int64_t size, std::size_t seed) {
  std::vector<std::int64_t> groups;
  for (std::int64_t r = 0; r < n; ++r) groups.push_back(r / size);
  std::minstd_rand random(static_cast<std::uint32_t>(seed + 1));
  std::shuffle(groups.begin(), groups.end(), random);
  std::vector<std::int64_t> fresh(static_cast<std::size_t>(n / size), -1);
  std::int64_t next = 0;
  for (std::int64_t& group : groups) {
    std::int64_t& label = fresh[static_cast<std::size_t>(group)];
    if (label < 0) label = next++;
    group = label;
  }
  return ReplicaGrouping::from_assignment(groups);
}

}  // namespace popsr::test
