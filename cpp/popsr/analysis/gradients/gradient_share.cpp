#include "popsr/analysis/gradients/gradient_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace popsr {
namespace {

/// A sum of derivatives: how often the ones of each block of GradientShare::equal occur in it, by block.
using Terms = std::vector<std::pair<std::uint32_t, std::int64_t>>;

/// Normalises a list of terms, in which blocks may occur more than once.
void tidy(Terms& terms) {
  if (terms.size() <= 1) return;
  std::ranges::sort(terms);
  std::size_t last = 0;
  for (std::size_t i = 1; i < terms.size(); ++i) {
    if (terms[i].first == terms[last].first) {
      terms[last].second += terms[i].second;
    } else {
      terms[++last] = terms[i];
    }
  }
  terms.resize(last + 1);
}

/// The terms of the sum over each block of `summed`, of terms of each replica.
template <class Of>
std::vector<Terms> sums_over_blocks(const PartitionTable& table, PartitionId summed, const Of& of) {
  std::vector<Terms> sums(static_cast<std::size_t>(table.num_blocks(summed)));
  const auto blocks = table.labels(summed);
  for (std::size_t r = 0; r < blocks.size(); ++r) of(static_cast<Replica>(r), sums[blocks[r]]);
  for (Terms& sum : sums) tidy(sum);
  return sums;
}

std::vector<Terms> terms_of_blocks(const PartitionTable& table, PartitionId summed, PartitionId equal) {
  const auto labels = table.labels(equal);
  return sums_over_blocks(table, summed, [&](Replica r, Terms& sum) { sum.emplace_back(labels[r], 1); });
}

/// a = k * b
std::optional<Ratio> quotient(const Terms& a, const Terms& b) {
  if (a.size() != b.size() || a.empty()) return std::nullopt;
  const std::int64_t divisor = std::gcd(a.begin()->second, b.begin()->second);
  const Ratio k{a.begin()->second / divisor, b.begin()->second / divisor};
  const bool same = std::ranges::equal(a, b, [&k](const auto& x, const auto& y) {
    return x.first == y.first && x.second * k.denominator == y.second * k.numerator;
  });
  return same ? std::optional(k) : std::nullopt;
}

/// Quotient k that is equal on all replicas; `a` and `b` give the terms on a replica.
template <class A, class B>
std::optional<Ratio> common_quotient(const PartitionTable& table, const A& a, const B& b) {
  std::optional<Ratio> common;
  for (Replica r = 0; r < static_cast<Replica>(table.replicas()); ++r) {
    const std::optional<Ratio> k = quotient(a(r), b(r));
    if (!k || (common && *common != *k)) return std::nullopt;
    common = k;
  }
  return common;
}

/// Terms of the sum over the block of each replica.
class BlockTerms {
 public:
  BlockTerms(const PartitionTable& table, PartitionId summed, PartitionId equal)
      : labels_(table.labels(summed)), terms_(terms_of_blocks(table, summed, equal)) {}
  const Terms& operator()(Replica r) const { return terms_[labels_[r]]; }

 private:
  std::span<const std::uint32_t> labels_;  // of an interned partition, which stay
  std::vector<Terms> terms_;
};

/// Terms of the sum over the members of each replica's group.
class GroupTerms {
 public:
  /// `of` appends the terms of a replica.
  template <class Of>
  GroupTerms(const ReplicaGrouping& group, const Of& of)
      : groups_(group.assignment()), terms_(static_cast<std::size_t>(group.num_groups())) {
    for (std::size_t r = 0; r < groups_.size(); ++r) of(static_cast<Replica>(r), sum_of(r));
    for (Terms& terms : terms_) tidy(terms);
  }
  const Terms& operator()(Replica r) const { return terms_[static_cast<std::size_t>(groups_[r])]; }
  /// Partition of replicas with equal terms.
  PartitionId equal(PartitionTable& table) const {
    std::map<Terms, std::uint64_t> known;
    std::vector<std::uint64_t> of_group, keys;
    for (const Terms& each : terms_) of_group.push_back(known.try_emplace(each, known.size()).first->second);
    for (const std::int64_t group : groups_) keys.push_back(of_group[static_cast<std::size_t>(group)]);
    return table.from_keys(keys);
  }

 private:
  Terms& sum_of(std::size_t r) { return terms_[static_cast<std::size_t>(groups_[r])]; }

  std::span<const std::int64_t> groups_;
  std::vector<Terms> terms_;
};

void append(Terms& sum, const Terms& terms) { sum.insert(sum.end(), terms.begin(), terms.end()); }

}  // namespace

Ratio operator*(const Ratio& a, const Ratio& b) {
  const std::int64_t first = std::gcd(a.numerator, b.denominator);
  const std::int64_t second = std::gcd(b.numerator, a.denominator);
  return {(a.numerator / first) * (b.numerator / second), (a.denominator / second) * (b.denominator / first)};
}

GradientShare starting_share(PartitionId fact, std::uint32_t source) {
  return {.summed = fact, .equal = fact, .whole = fact, .source = source};
}

std::optional<Ratio> factor_over(PartitionTable& table, const GradientShare& share, PartitionId summed) {
  if (summed == share.summed) return share.factor;
  const BlockTerms held(table, share.summed, share.equal), wanted(table, summed, share.equal);
  const auto k = common_quotient(table, held, wanted);
  return k ? std::optional(share.factor * *k) : std::nullopt;
}

bool is_whole(PartitionTable& table, const GradientShare& share, PartitionId whole) {
  return factor_over(table, share, whole).has_value();
}

std::optional<GradientShare> sum_of(PartitionTable& table, const GradientShare& a, const GradientShare& b) {
  GradientShare sum = a;
  sum.equal = table.meet(a.equal, b.equal);
  sum.scaled = a.scaled || b.scaled;
  sum.whole = table.meet(a.whole, b.whole);
  if (a.summed == b.summed && (a.factor == b.factor || sum.scaled)) return sum;
  for (const PartitionId summed :
       {a.summed, b.summed, table.meet(a.summed, b.summed), table.join(a.summed, b.summed), table.bottom()}) {
    const auto first = factor_over(table, a, summed), second = factor_over(table, b, summed);
    if (!first || !second) continue;
    if (*first != *second && !sum.scaled) return std::nullopt;
    sum.summed = summed;
    sum.factor = *first;
    return sum;
  }
  return std::nullopt;
}

std::optional<GradientShare> reduced(PartitionTable& table, const GradientShare& share,
                                     const ReplicaGrouping& group, bool mean) {
  const BlockTerms held(table, share.summed, share.equal);
  const GroupTerms added(group, [&held](Replica r, Terms& sum) { append(sum, held(r)); });
  const PartitionId groups = group.partition(table);
  for (const PartitionId summed : {table.join(share.summed, groups), groups}) {
    const BlockTerms wanted(table, summed, share.equal);
    const auto k = common_quotient(table, added, wanted);
    if (!k) continue;
    GradientShare sum = share;
    sum.summed = summed;
    sum.factor = share.factor * *k;
    if (mean) sum.factor = sum.factor * Ratio{1, group.group_size()};
    return sum;
  }
  return std::nullopt;
}

std::optional<GradientShare> of_summed(PartitionTable& table, const GradientShare& share,
                                       const ReplicaGrouping& group) {
  const auto labels = table.labels(share.equal);
  // The derivative by x_r is the sum of the derivatives by y_j over the group of r.
  const GroupTerms of_x(group, [&labels](Replica r, Terms& sum) { sum.emplace_back(labels[r], 1); });
  const BlockTerms held(table, share.summed, share.equal);
  const PartitionId groups = group.partition(table);
  for (const PartitionId summed : {table.bottom(), share.summed, table.join(share.summed, groups)}) {
    const std::vector<Terms> wanted =
        sums_over_blocks(table, summed, [&](Replica r, Terms& sum) { append(sum, of_x(r)); });
    const auto k = common_quotient(
        table, held, [&](Replica r) -> const Terms& { return wanted[table.labels(summed)[r]]; });
    if (!k) continue;
    GradientShare result = share;
    result.summed = summed;
    result.factor = share.factor * *k;
    result.equal = of_x.equal(table);
    return result;
  }
  return std::nullopt;
}

std::optional<GradientShare> after_op(PartitionTable& table, GradientShare share, PartitionId values,
                                      PartitionId equal) {
  if (!table.refines(share.summed, values)) {
    const PartitionId finer = table.meet(share.summed, values);
    auto factor = factor_over(table, share, finer);
    if (factor) {
      share.summed = finer;
    } else {
      factor = factor_over(table, share, table.bottom());
      share.summed = table.bottom();
    }
    if (!factor) return std::nullopt;
    share.factor = *factor;
  }
  share.equal = equal;
  return share;
}

}  // namespace popsr
