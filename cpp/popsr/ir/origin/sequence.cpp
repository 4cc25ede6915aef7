#include "popsr/ir/origin/sequence.h"

namespace popsr {

void SequenceState::restore(Tail tail) noexcept {
  last_ordered_ = tail.last_ordered;
  if (since_.size() > tail.since) since_.resize(tail.since);
}

std::vector<OpId> SequenceState::place(OpId op, SequenceMode mode) {
  std::vector<OpId> after;
  if (mode == SequenceMode::kPass) return after;
  if (last_ordered_ != kNone) after.push_back(last_ordered_);
  if (mode == SequenceMode::kUnordered) {
    since_.push_back(op);
    return after;
  }
  if (!since_.empty()) after = since_;  // each of them already follows last_ordered_
  since_.clear();
  last_ordered_ = op;
  return after;
}

void SequenceState::clear() {
  last_ordered_ = kNone;
  since_.clear();
}

void SequenceState::replace(const std::function<bool(OpId)>& gone, OpId op) {
  const bool last = last_ordered_ != kNone && gone(last_ordered_);
  if (last) last_ordered_ = op;
  // Whoever follows the last ordered op need not follow it twice.
  if (std::erase_if(since_, gone) > 0 && !last) since_.push_back(op);
}

}  // namespace popsr
