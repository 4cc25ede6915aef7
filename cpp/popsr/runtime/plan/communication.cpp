#include "popsr/runtime/plan/communication.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "popsr/base/threads/deep_stack.h"
#include "popsr/ir/op_def.h"
#include "popsr/runtime/lowering/rewrites.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_chain.h"

namespace popsr {
namespace {

/// Key of exchanges that move the same messages.
struct SameMessages {
  std::vector<std::pair<PartitionId, std::size_t>> operands = {};  ///< Storage, and bytes of a value.
  std::optional<ReplicaGrouping> groups = {};                      ///< None: all ranks see all replicas.
  std::size_t chain_message = 0, chain_result = 0;  ///< Bytes of an element; 0 without a chain.

  bool operator==(const SameMessages&) const = default;
};

void add_message(std::vector<Traffic>& ranks, std::int64_t from, std::int64_t to, std::size_t bytes,
                 std::uint64_t messages) {
  Traffic& sender = ranks[static_cast<std::size_t>(from)];
  Traffic& receiver = ranks[static_cast<std::size_t>(to)];
  sender.sent_bytes += bytes;
  sender.sent_messages += messages;
  receiver.received_bytes += bytes;
  receiver.received_messages += messages;
}

std::uint64_t most_bytes(const Traffic& traffic) {
  return std::max(traffic.sent_bytes, traffic.received_bytes);
}

class Planner {
 public:
  Planner(const PartitionAnalysis& facts, const PlanOptions& options, std::size_t message_bytes)
      : ir_(facts.ir()),
        table_(ir_.partitions()),
        options_(options),
        message_bytes_(message_bytes),
        program_(plan_program(facts, options)),
        blocks_(table_, options.ranks) {}

  std::vector<PlannedExchange> plan() {
    plan(program_.ops, 1, false);
    return std::move(found_);
  }

 private:
  const RankMap& ranks() const { return options_.ranks; }
  std::vector<Traffic> no_traffic() const {
    return std::vector<Traffic>(static_cast<std::size_t>(ranks().ranks));
  }

  void plan(const std::vector<LoweredOp>& ops, std::int64_t times, bool is_bound) {
    for (const LoweredOp& op : ops) {
      const auto* const loop = op.as<lowered::Loop>();
      const bool asks = loop != nullptr && !op.in.empty();
      const bool branches = op.is<lowered::Conditional>();
      const std::int64_t inside = loop == nullptr ? times : times * loop->count;
      const auto plan_bodies = [&] {
        for_each_body(op, [&](const std::vector<LoweredOp>& body) {
          plan(body, inside, is_bound || asks || branches);
        });
      };
      if (loop != nullptr) plan_bodies();  // a loop asks its condition behind its body
      if (asks || branches || is_collective(op)) add(op, inside, is_bound || asks);
      if (loop == nullptr) plan_bodies();
    }
  }

  static bool is_collective(const LoweredOp& op) {
    return op.is<lowered::Plain>() && op.op->def->kernel.collective != nullptr;
  }

  void add(const LoweredOp& op, std::int64_t times, bool is_bound) {
    if (ranks().is_alone()) return;
    const std::optional<ReductionChain> chain = chain_for(ir_, blocks_, program_, op, options_);
    PlannedExchange planned{.op = op.op, .executions = times, .is_bound = is_bound};
    planned.traffic = chain ? chain_traffic(op, *chain) : block_traffic(op);
    if (planned.traffic == nullptr) return;
    if (chain) planned.kind = ExchangeKind::kChain;
    if (planned.traffic->is_gathered) planned.kind = ExchangeKind::kGather;
    if (is_collective(op)) planned.groups = collective_groups(ir_, *op.op);
    for (const BufferId id : op.in) {
      if (id == kNone) continue;
      planned.tensor = program_.buffers[id].tensor;
      planned.value_bytes = bytes_of(program_.buffers[id].type);
      break;
    }
    found_.push_back(std::move(planned));
  }

  /// Known traffic of a key, or the result of `make`, which may be null.
  template <class Make>
  std::shared_ptr<const ExchangeTraffic> once(SameMessages key, const Make& make) {
    const auto is_same = [&](const auto& known) { return known.first == key; };
    if (const auto it = std::ranges::find_if(known_, is_same); it != known_.end()) return it->second;
    std::shared_ptr<const ExchangeTraffic> made = make();
    known_.emplace_back(std::move(key), made);
    return made;
  }

  std::shared_ptr<const ExchangeTraffic> block_traffic(const LoweredOp& op) {
    SameMessages key;
    for (const BufferId id : op.in) {
      if (id == kNone) continue;
      key.operands.emplace_back(program_.buffers[id].storage, bytes_of(program_.buffers[id].type));
    }
    const auto make = [&] { return make_block_traffic(op, key.operands); };
    if (is_collective(op)) {
      key.groups = collective_groups(ir_, *op.op);
      if (!key.groups) return make();  // of a stream: its rows decide
    }
    return once(key, make);
  }

  std::shared_ptr<const ExchangeTraffic> make_block_traffic(
      const LoweredOp& op, const std::vector<std::pair<PartitionId, std::size_t>>& operands) const {
    auto traffic = std::make_shared<ExchangeTraffic>();
    traffic->ranks = no_traffic();
    const std::vector<SeenReplicas> seen = seen_by_rank(ir_, op, ranks());
    bool is_needed = false;
    std::size_t payload_bytes = 0;
    for (const auto& [storage, bytes] : operands) {
      const std::uint64_t messages = messages_of(bytes, message_bytes_);
      const std::span<const std::uint32_t> labels = table_.labels(storage);
      SentBlocks sent(ranks().ranks, table_.num_blocks(storage));
      for_each_message(table_, storage, ranks(), seen,
                       [&, size = bytes](std::int64_t from, std::int64_t to, Replica replica) {
                         is_needed = true;
                         add_message(traffic->ranks, from, to, size, messages);
                         sent.position(from, labels[replica]);
                       });
      payload_bytes += sent.max_sent() * bytes;
    }
    if (!is_needed) return nullptr;
    traffic->is_gathered = payload_bytes <= max_payload(ranks().ranks);
    if (traffic->is_gathered)
      std::ranges::fill(traffic->ranks, gathered_traffic(payload_bytes, ranks().ranks));
    const auto hops =
        static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(ranks().ranks - 1)));
    for (const Traffic& each : traffic->ranks) {
      const std::uint64_t at_once = each == Traffic() ? 0 : 1;
      traffic->paths.push_back({traffic->is_gathered ? hops : at_once, most_bytes(each)});
    }
    return traffic;
  }

  std::shared_ptr<const ExchangeTraffic> chain_traffic(const LoweredOp& op, const ReductionChain& chain) {
    const Buffer& in = program_.buffers[op.in[0]];
    const std::size_t result = size_of(ir_.tensor(op.op->outputs[0]).type.dtype);
    const ReplicaGrouping groups = group_of(ir_, *op.op);
    SameMessages key{{{in.storage, bytes_of(in.type)}}, groups, chain.message_size, result};
    return once(std::move(key), [&] {
      auto traffic = std::make_shared<ExchangeTraffic>();
      traffic->ranks = no_traffic();
      traffic->paths.resize(traffic->ranks.size());
      const std::int64_t elements = num_elements(in.type.shape);
      for (std::int64_t g = 0; g < groups.num_groups(); ++g) {
        const std::vector<std::int64_t> owners = chain_ranks(groups.group(g), ranks());
        const ChainSteps steps{elements, std::min(options_.chain.chunk_elements, elements),
                               static_cast<std::int64_t>(owners.size()) - 1};
        add_pass(owners, steps, chain.message_size, result, *traffic);
      }
      for (std::size_t rank = 0; rank < traffic->ranks.size(); ++rank) {
        traffic->paths[rank].bytes += most_bytes(traffic->ranks[rank]);
      }
      return traffic;
    });
  }

  /// A group's chain. A rank waits for its last chunk to go to the last rank and back; the groups that it is
  /// in come one after another.
  void add_pass(const std::vector<std::int64_t>& owners, const ChainSteps& steps, std::size_t message,
                std::size_t result, ExchangeTraffic& traffic) const {
    std::uint64_t messages = 0, results = 0;
    for (std::int64_t chunk = 0; chunk < steps.chunks(); ++chunk) {
      const auto count = static_cast<std::size_t>(steps.count(chunk));
      messages += messages_of(count * message, message_bytes_);
      results += messages_of(count * result, message_bytes_);
    }
    const auto elements = static_cast<std::size_t>(steps.elements);
    const std::size_t last_chunk =
        static_cast<std::size_t>(steps.count(steps.chunks() - 1)) * std::min(message, result);
    for (std::size_t k = 0; k < owners.size(); ++k) {
      const auto hops = static_cast<std::uint64_t>(2 * (steps.last - static_cast<std::int64_t>(k)));
      if (hops == 0) continue;
      add_message(traffic.ranks, owners[k], owners[k + 1], elements * message, messages);
      add_message(traffic.ranks, owners[k + 1], owners[k], elements * result, results);
      CriticalPath& path = traffic.paths[static_cast<std::size_t>(owners[k])];
      path.messages += hops;
      path.bytes += (hops - 1) * last_chunk;
    }
  }

  const Ir& ir_;
  PartitionTable& table_;
  const PlanOptions& options_;
  std::size_t message_bytes_;
  LoweredProgram program_;
  LocalBlocks blocks_;
  std::vector<std::pair<SameMessages, std::shared_ptr<const ExchangeTraffic>>> known_;
  std::vector<PlannedExchange> found_;
};

}  // namespace

std::vector<PlannedExchange> planned_exchanges(const PartitionAnalysis& facts, const PlanOptions& options,
                                               std::size_t message_bytes) {
  std::vector<PlannedExchange> found;
  with_deep_stack([&] { found = Planner(facts, options, message_bytes).plan(); });
  return found;
}

}  // namespace popsr
