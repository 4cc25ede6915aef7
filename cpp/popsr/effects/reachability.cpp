#include "popsr/effects/reachability.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "popsr/ir/op_def.h"

namespace popsr {
namespace {

/// Positions of the ops that make the tensors of a graph, noted as its ops pass: to look at each tensor and
/// at its op would wait for memory most of the time.
class Makers {
 public:
  Makers(const Ir& ir, const Graph& graph) : ir_(ir) {
    if (graph.tensors.empty()) return;
    const auto [low, high] = std::ranges::minmax(graph.tensors);
    const std::size_t range = high.index() - low.index() + 1;
    if (range > 4 * graph.tensors.size()) return;  // made among those of many other graphs
    first_ = low.value;
    at_.assign(range, kNone);
  }

  void note(std::span<const TensorId> outputs, std::uint32_t position) {
    if (at_.empty()) return;
    for (const TensorId output : outputs) at_[output.value - first_] = position;
  }
  /// Position of the op that makes a tensor; kNone if none does.
  std::uint32_t of(TensorId tensor) const {
    if (!at_.empty()) return at_[tensor.value - first_];
    const OpId producer = ir_.tensor(tensor).uses.producer;
    return producer == kNone ? std::uint32_t{kNone} : ir_.op(producer).schedule.position;
  }

 private:
  const Ir& ir_;
  std::uint32_t first_ = 0;
  std::vector<std::uint32_t> at_;  ///< Positions by number of the tensor minus `first_`; empty: not kept.
};

/// The ops that each op depends on, by position.
class Predecessors {
 public:
  Predecessors(const Ir& ir, const Graph& graph, const FlatSchedule& schedule) {
    Makers makers(ir, graph);
    first_.reserve(schedule.size() + 1);
    list_.reserve(2 * schedule.size());
    for (std::uint32_t i = 0; i < schedule.size(); ++i) {
      const auto add = [&](std::uint32_t before) {
        if (before != kNone && before != i) list_.push_back(before);
      };
      if (schedule[i].ordered) {
        for (const OpId before : ir.op(schedule[i].id).schedule.after) add(ir.op(before).schedule.position);
      }
      for (const TensorId input : schedule.inputs(i)) {
        if (input != kNone) add(makers.of(input));
      }
      makers.note(schedule.outputs(i), i);
      first_.push_back(static_cast<std::uint32_t>(list_.size()));
    }
  }

  std::span<const std::uint32_t> of(std::size_t at) const {
    return std::span(list_).subspan(first_[at], first_[at + 1] - first_[at]);
  }
  std::size_t size() const { return first_.size() - 1; }

 private:
  std::vector<std::uint32_t> first_{0}, list_;
};

/// Numbers of chains of which each op depends on the one before, by position.
std::vector<std::uint32_t> chains_of(const Predecessors& predecessors) {
  std::vector<std::uint32_t> chains(predecessors.size(), kNone), tails;
  for (std::uint32_t op = 0; op < chains.size(); ++op) {
    for (const std::uint32_t before : predecessors.of(op)) {
      if (chains[op] == kNone && tails[chains[before]] == before) chains[op] = chains[before];
    }
    if (chains[op] == kNone) {
      chains[op] = static_cast<std::uint32_t>(tails.size());
      tails.push_back(op);
    }
    tails[chains[op]] = op;
  }
  return chains;
}

bool reads_one_of(std::span<const TensorId> inputs, std::span<const TensorId> outputs) {
  return std::ranges::any_of(inputs, [&](TensorId input) {
    return input != kNone && std::ranges::find(outputs, input) != outputs.end();
  });
}

constexpr std::size_t kWords = 8;
using Bits = std::array<std::uint64_t, kWords>;
constexpr std::size_t kBatch = kWords * 64;  ///< First ops of one pass.

/// Answers the questions of these numbers, ascending by `first`, of which no more than kBatch differ.
void answer_batch(const Predecessors& predecessors, std::span<const OrderQuestion> questions,
                  std::span<const std::uint32_t> asked, std::vector<Bits>& reached,
                  std::vector<bool>& answers) {
  const std::uint32_t begin = questions[asked.front()].first;
  std::uint32_t end = begin;
  for (const std::uint32_t q : asked) end = std::max(end, questions[q].second + 1);
  std::vector<std::pair<std::uint32_t, std::size_t>> starts;  // first ops with their bits, ascending
  for (const std::uint32_t q : asked) {
    const std::uint32_t first = questions[q].first;
    if (starts.empty() || starts.back().first != first) starts.emplace_back(first, starts.size());
  }
  auto next = starts.begin();
  for (std::uint32_t at = begin; at < end; ++at) {
    Bits bits{};
    for (const std::uint32_t before : predecessors.of(at)) {
      if (before < begin) continue;
      for (std::size_t w = 0; w < kWords; ++w) bits[w] |= reached[before][w];
    }
    if (next != starts.end() && next->first == at) {
      bits[next->second / 64] |= std::uint64_t{1} << next->second % 64;
      ++next;
    }
    reached[at] = bits;
  }
  for (const std::uint32_t q : asked) {
    const auto start = std::ranges::lower_bound(starts, questions[q].first, {},
                                                &std::pair<std::uint32_t, std::size_t>::first);
    answers[q] = (reached[questions[q].second][start->second / 64] >> start->second % 64 & 1) != 0;
  }
}

}  // namespace

bool follows(const Ir& ir, const Op& op, const Op& before) {
  const auto is_before = [&](OpId id) {
    if (id == before.id) return true;
    return !before.schedule.parts.empty() && ir.op(id).schedule.position == before.schedule.position;
  };
  if (std::ranges::any_of(op.schedule.after, is_before)) return true;
  return reads_one_of(op.inputs, before.outputs);
}

NeighbourRuns::NeighbourRuns(const Ir& ir, const FlatSchedule& schedule) {
  run_.reserve(schedule.size());
  std::uint32_t run = 0;
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    if (i > 0) {
      const bool known = reads_one_of(schedule.inputs(i), schedule.outputs(i - 1));
      const bool ordered =
          schedule[i].ordered && follows(ir, ir.op(schedule[i].id), ir.op(schedule[i - 1].id));
      if (!known && !ordered) ++run;
    }
    run_.push_back(run);
  }
}

std::uint32_t NeighbourRuns::last_run() const {
  if (run_.empty()) return 0;
  return static_cast<std::uint32_t>(std::ranges::lower_bound(run_, run_.back()) - run_.begin());
}

std::vector<bool> must_run_before(const Ir& ir, const Graph& graph, const FlatSchedule& schedule,
                                  std::span<const OrderQuestion> questions) {
  std::vector<bool> answers(questions.size(), true);
  if (questions.empty()) return answers;
  const Predecessors predecessors(ir, graph, schedule);
  const std::vector<std::uint32_t> chains = chains_of(predecessors);
  std::vector<std::uint32_t> open;
  for (std::uint32_t q = 0; q < questions.size(); ++q) {
    if (chains[questions[q].first] != chains[questions[q].second]) open.push_back(q);
  }
  std::ranges::stable_sort(open, {}, [&](std::uint32_t q) { return questions[q].first; });
  std::vector<Bits> reached(open.empty() ? 0 : graph.ops.size());
  for (std::size_t begin = 0; begin < open.size();) {
    std::size_t end = begin, starts = 0;
    for (; end < open.size(); ++end) {
      const bool fresh = end == begin || questions[open[end]].first != questions[open[end - 1]].first;
      if (fresh && ++starts > kBatch) break;
    }
    answer_batch(predecessors, questions, std::span(open).subspan(begin, end - begin), reached, answers);
    begin = end;
  }
  return answers;
}

}  // namespace popsr
