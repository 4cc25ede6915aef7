#include "popsr/analysis/gradients/gradient_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace popsr {
namespace {

/// A sum of derivatives: how often the ones of each block of GradientShare::equal occur in it.
using Terms = std::map<std::uint32_t, std::int64_t>;

void add_terms(Terms& sum, const Terms& terms) {
  for (const auto& [block, count] : terms) sum[block] += count;
}

/// The terms of the sum over each block of `summed`.
std::vector<Terms> terms_of_blocks(const PartitionTable& table, PartitionId summed, PartitionId equal) {
  std::vector<Terms> terms(static_cast<std::size_t>(table.num_blocks(summed)));
  const auto blocks = table.labels(summed), labels = table.labels(equal);
  for (std::size_t r = 0; r < labels.size(); ++r) ++terms[blocks[r]][labels[r]];
  return terms;
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

/// The k that is the same on all replicas; `a` and `b` give the terms on a replica.
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
      : labels_(table.labels(summed).begin(), table.labels(summed).end()),
        terms_(terms_of_blocks(table, summed, equal)) {}
  const Terms& operator()(Replica r) const { return terms_[labels_[r]]; }

 private:
  std::vector<std::uint32_t> labels_;
  std::vector<Terms> terms_;
};

/// Terms of the sum over the members of each replica's group.
template <class Of>
std::vector<Terms> terms_of_groups(const PartitionTable& table, const ReplicaGrouping& group, const Of& of) {
  std::vector<Terms> of_group(static_cast<std::size_t>(group.num_groups()));
  for (std::int64_t g = 0; g < group.num_groups(); ++g) {
    for (const Replica member : group.group(g)) add_terms(of_group[static_cast<std::size_t>(g)], of(member));
  }
  std::vector<Terms> terms;
  for (std::size_t r = 0; r < static_cast<std::size_t>(table.replicas()); ++r) {
    terms.push_back(of_group[static_cast<std::size_t>(group.assignment()[r])]);
  }
  return terms;
}

/// Replicas whose terms are the same.
PartitionId equal_terms(PartitionTable& table, const std::vector<Terms>& terms) {
  std::map<Terms, std::uint64_t> known;
  std::vector<std::uint64_t> keys;
  for (const Terms& each : terms) keys.push_back(known.try_emplace(each, known.size()).first->second);
  return table.from_keys(keys);
}

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
  const std::vector<Terms> added = terms_of_groups(table, group, held);
  const PartitionId groups = group.partition(table);
  for (const PartitionId summed : {table.join(share.summed, groups), groups}) {
    const BlockTerms wanted(table, summed, share.equal);
    const auto k = common_quotient(
        table, [&](Replica r) -> const Terms& { return added[r]; }, wanted);
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
  const std::vector<Terms> of_x = terms_of_groups(table, group, [&](Replica r) {
    return Terms{{labels[r], 1}};
  });
  const BlockTerms held(table, share.summed, share.equal);
  const PartitionId groups = group.partition(table);
  for (const PartitionId summed : {table.bottom(), share.summed, table.join(share.summed, groups)}) {
    std::vector<Terms> wanted(static_cast<std::size_t>(table.num_blocks(summed)));
    for (std::size_t r = 0; r < of_x.size(); ++r) add_terms(wanted[table.labels(summed)[r]], of_x[r]);
    const auto k = common_quotient(
        table, held, [&](Replica r) -> const Terms& { return wanted[table.labels(summed)[r]]; });
    if (!k) continue;
    GradientShare result = share;
    result.summed = summed;
    result.factor = share.factor * *k;
    result.equal = equal_terms(table, of_x);
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
