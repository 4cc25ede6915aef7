// Shares of derivatives, beside the sums themselves: random partitions, groups, and numbers for derivatives.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "popsr/analysis/gradients/gradient_share.h"

using namespace popsr;

namespace {

using Numbers = std::vector<double>;

/// Draws of one case: everything is an integer, so sums are exact.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed), table_(below(9) + 2) {}

  PartitionTable& table() { return table_; }
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }

  PartitionId partition() {
    const std::int64_t labels = 1 + below(table_.replicas());
    std::vector<std::uint64_t> keys;
    for (std::int64_t r = 0; r < table_.replicas(); ++r)
      keys.push_back(static_cast<std::uint64_t>(below(labels)));
    return table_.from_keys(keys);
  }

  ReplicaGrouping grouping() {
    const std::int64_t replicas = table_.replicas();
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = 1; size <= replicas; ++size) {
      if (replicas % size == 0) sizes.push_back(size);
    }
    const std::int64_t size = sizes[static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())))];
    std::vector<std::int64_t> assignment;
    for (std::int64_t r = 0; r < replicas; ++r) assignment.push_back(r / size);
    if (below(2) == 1) std::ranges::shuffle(assignment, random_);
    std::vector<std::int64_t> order;  // numbered by first appearance
    for (std::int64_t& group : assignment) {
      const auto known = std::ranges::find(order, group);
      if (known == order.end()) order.push_back(group);
      group = std::ranges::find(order, group) - order.begin();
    }
    return ReplicaGrouping::from_assignment(assignment);
  }

  /// Equal inside the blocks of `fact`.
  Numbers derivatives(PartitionId fact) {
    Numbers of_block(static_cast<std::size_t>(table_.num_blocks(fact)));
    for (double& each : of_block) each = static_cast<double>(1 + below(1 << 20));
    Numbers h;
    for (const std::uint32_t label : table_.labels(fact)) h.push_back(of_block[label]);
    return h;
  }

  GradientShare share() {
    GradientShare share = starting_share(partition(), 0);
    if (below(2) == 1) share.summed = partition();
    if (below(2) == 1) share.equal = partition();
    share.factor = {1 + below(3), 1};
    return share;
  }

 private:
  std::mt19937 random_;
  PartitionTable table_;
};

/// The numbers of a tensor of this share.
Numbers share_values(PartitionTable& table, const GradientShare& share, const Numbers& h) {
  const auto labels = table.labels(share.summed);
  Numbers sums(static_cast<std::size_t>(table.num_blocks(share.summed)));
  for (std::size_t r = 0; r < h.size(); ++r) sums[labels[r]] += h[r];
  Numbers dx;
  for (const std::uint32_t label : labels) {
    dx.push_back(sums[label] * static_cast<double>(share.factor.numerator) /
                 static_cast<double>(share.factor.denominator));
  }
  return dx;
}

Numbers summed(const ReplicaGrouping& group, const Numbers& dx) {
  Numbers result;
  for (Replica r = 0; r < dx.size(); ++r) {
    double sum = 0;
    for (const Replica member : group.members(r)) sum += dx[member];
    result.push_back(sum);
  }
  return result;
}

void check_near(const Numbers& a, const Numbers& b) {
  for (std::size_t r = 0; r < a.size(); ++r) CHECK(a[r] == doctest::Approx(b[r]).epsilon(1e-12));
}

constexpr std::uint32_t kCases = 4000;

}  // namespace

TEST_CASE("shares: a factor over other blocks is of the same numbers") {
  int known = 0;
  for (std::uint32_t seed = 0; seed < kCases; ++seed) {
    Draw draw(seed);
    const GradientShare share = draw.share();
    GradientShare other = share;
    other.summed = draw.partition();
    const auto factor = factor_over(draw.table(), share, other.summed);
    if (!factor) continue;
    ++known;
    other.factor = *factor;
    const Numbers h = draw.derivatives(share.equal);
    check_near(share_values(draw.table(), share, h), share_values(draw.table(), other, h));
  }
  CHECK(known > 100);
}

TEST_CASE("shares: sums and means over groups") {
  int known = 0;
  for (std::uint32_t seed = 0; seed < kCases; ++seed) {
    Draw draw(seed);
    const GradientShare share = draw.share();
    const ReplicaGrouping group = draw.grouping();
    const Numbers h = draw.derivatives(share.equal);
    Numbers expected = summed(group, share_values(draw.table(), share, h));
    const bool mean = draw.below(2) == 1;
    const auto after = reduced(draw.table(), share, group, mean);
    if (!after) continue;
    ++known;
    if (mean) {
      for (double& each : expected) each /= static_cast<double>(group.group_size());
    }
    check_near(share_values(draw.table(), *after, h), expected);
  }
  CHECK(known > 100);
}

TEST_CASE("shares: the sum of two gradients") {
  int known = 0;
  for (std::uint32_t seed = 0; seed < kCases; ++seed) {
    Draw draw(seed);
    const GradientShare a = draw.share();
    GradientShare b = draw.share();
    if (draw.below(2) == 1) b.factor = a.factor;
    const auto both = sum_of(draw.table(), a, b);
    if (!both) continue;
    ++known;
    const Numbers first = draw.derivatives(a.equal), second = draw.derivatives(b.equal);
    const Numbers da = share_values(draw.table(), a, first), db = share_values(draw.table(), b, second);
    Numbers h = first, dx = da;
    for (std::size_t r = 0; r < h.size(); ++r) {
      h[r] += second[r];
      dx[r] += db[r];
    }
    check_near(share_values(draw.table(), *both, h), dx);
  }
  CHECK(known > 100);
}

TEST_CASE("shares: the gradient of a sum over groups, taken for the gradient of its terms") {
  int known = 0;
  for (std::uint32_t seed = 0; seed < kCases; ++seed) {
    Draw draw(seed);
    const GradientShare share = draw.share();
    const ReplicaGrouping group = draw.grouping();
    const auto after = of_summed(draw.table(), share, group);
    if (!after) continue;
    ++known;
    const Numbers by_sum = draw.derivatives(share.equal), by_term = summed(group, by_sum);
    check_near(share_values(draw.table(), *after, by_term), share_values(draw.table(), share, by_sum));
    const auto labels = draw.table().labels(after->equal);
    for (std::size_t r = 0; r < by_term.size(); ++r) {
      for (std::size_t s = 0; s < r; ++s) {
        if (labels[r] == labels[s]) CHECK(by_term[r] == by_term[s]);
      }
    }
  }
  CHECK(known > 100);
}

TEST_CASE("shares: an op leaves sums over replicas whose forward values are equal") {
  int known = 0;
  for (std::uint32_t seed = 0; seed < kCases; ++seed) {
    Draw draw(seed);
    const GradientShare share = draw.share();
    const PartitionId values = draw.partition();
    const auto after = after_op(draw.table(), share, values, share.equal);
    if (!after) continue;
    ++known;
    CHECK(draw.table().refines(after->summed, values));
    const Numbers h = draw.derivatives(share.equal);
    check_near(share_values(draw.table(), *after, h), share_values(draw.table(), share, h));
  }
  CHECK(known > 100);
}
