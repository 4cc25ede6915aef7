// The partition lattice: its laws, on random partitions of few replicas.
#include <doctest/doctest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/replica/limits.h"
#include "popsr/replica/partition.h"

namespace popsr {
namespace {

using Keys = std::vector<std::uint64_t>;

/// Few distinct keys make coarse partitions, many make fine ones.
PartitionId random_partition(PartitionTable& table, std::mt19937& random) {
  Keys keys(static_cast<std::size_t>(table.replicas()));
  const std::uint64_t spread = 1 + random() % (keys.size() + 1);
  for (std::uint64_t& key : keys) key = random() % spread;
  return table.from_keys(keys);
}

/// Calls body(table, random) many times for every N in 1..12.
template <class Body>
void for_random_tables(const Body& body) {
  std::mt19937 random(20240611);
  for (std::int64_t replicas = 1; replicas <= 12; ++replicas) {
    PartitionTable table(replicas);
    CAPTURE(replicas);
    for (int round = 0; round < 200; ++round) body(table, random);
  }
}

bool together(const PartitionTable& table, PartitionId id, std::size_t r, std::size_t s) {
  return table.labels(id)[r] == table.labels(id)[s];
}

TEST_CASE("partition: meet is a commutative, associative, idempotent greatest lower bound") {
  for_random_tables([](PartitionTable& table, std::mt19937& random) {
    const PartitionId a = random_partition(table, random);
    const PartitionId b = random_partition(table, random);
    const PartitionId c = random_partition(table, random);
    CHECK(table.meet(a, b) == table.meet(b, a));
    CHECK(table.meet(a, table.meet(b, c)) == table.meet(table.meet(a, b), c));
    CHECK(table.meet(a, a) == a);
    CHECK(table.meet(a, table.top()) == a);
    CHECK(table.meet(a, table.bottom()) == table.bottom());
    CHECK(table.refines(table.meet(a, b), a));
    if (table.refines(c, a) && table.refines(c, b)) CHECK(table.refines(c, table.meet(a, b)));
  });
}

TEST_CASE("partition: join is a commutative, associative, idempotent least upper bound") {
  for_random_tables([](PartitionTable& table, std::mt19937& random) {
    const PartitionId a = random_partition(table, random);
    const PartitionId b = random_partition(table, random);
    const PartitionId c = random_partition(table, random);
    CHECK(table.join(a, b) == table.join(b, a));
    CHECK(table.join(a, table.join(b, c)) == table.join(table.join(a, b), c));
    CHECK(table.join(a, a) == a);
    CHECK(table.join(a, table.bottom()) == a);
    CHECK(table.join(a, table.top()) == table.top());
    CHECK(table.refines(a, table.join(a, b)));
    if (table.refines(a, c) && table.refines(b, c)) CHECK(table.refines(table.join(a, b), c));
    CHECK(table.meet(a, table.join(a, b)) == a);
    CHECK(table.join(a, table.meet(a, b)) == a);
  });
}

TEST_CASE("partition: refines is a partial order between bottom and top") {
  for_random_tables([](PartitionTable& table, std::mt19937& random) {
    const PartitionId a = random_partition(table, random);
    const PartitionId b = random_partition(table, random);
    const PartitionId c = random_partition(table, random);
    CHECK(table.refines(a, a));
    CHECK((table.refines(a, b) && table.refines(b, a)) == (a == b));
    if (table.refines(a, b) && table.refines(b, c)) CHECK(table.refines(a, c));
    CHECK(table.refines(a, b) == (table.meet(a, b) == a));
    CHECK(table.refines(a, b) == (table.join(a, b) == b));
    CHECK(table.refines(table.bottom(), a));
    CHECK(table.refines(a, table.top()));
  });
}

TEST_CASE("partition: meet keeps pairs that both keep; join closes the union transitively") {
  for_random_tables([](PartitionTable& table, std::mt19937& random) {
    const PartitionId a = random_partition(table, random);
    const PartitionId b = random_partition(table, random);
    const auto n = static_cast<std::size_t>(table.replicas());
    std::vector<std::vector<bool>> linked(n, std::vector<bool>(n));
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t s = 0; s < n; ++s) {
        linked[r][s] = together(table, a, r, s) || together(table, b, r, s);
        const bool both = together(table, a, r, s) && together(table, b, r, s);
        CHECK(together(table, table.meet(a, b), r, s) == both);
      }
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t r = 0; r < n; ++r) {
        for (std::size_t s = 0; s < n; ++s) linked[r][s] = linked[r][s] || (linked[r][k] && linked[k][s]);
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t s = 0; s < n; ++s) CHECK(together(table, table.join(a, b), r, s) == linked[r][s]);
    }
  });
}

TEST_CASE("partition: equal groupings are one id, whatever the keys are") {
  for_random_tables([](PartitionTable& table, std::mt19937& random) {
    const PartitionId a = random_partition(table, random);
    const auto labels = table.labels(a);
    Keys renamed;
    const std::uint64_t factor = (std::uint64_t{random()} << 32) | random() | 1;
    for (const std::uint32_t label : labels) renamed.push_back((label + 7) * factor);
    CHECK(table.from_keys(renamed) == a);
    std::uint32_t next = 0;
    for (const std::uint32_t label : table.labels(a)) {
      CHECK(label <= next);
      next = std::max(next, label + 1);
    }
    CHECK(table.num_blocks(a) == next);
    CHECK(table.representatives(a).size() == next);
    for (std::uint32_t block = 0; block < next; ++block) {
      const Replica first = table.representatives(a)[block];
      CHECK(table.labels(a)[first] == block);
      for (Replica r = 0; r < first; ++r) CHECK(table.labels(a)[r] != block);
    }
  });
}

TEST_CASE("partition: the table of 4 replicas holds each of the 15 partitions once") {
  PartitionTable table(4);
  std::set<PartitionId> ids;
  for (std::uint64_t code = 0; code < 256; ++code) {
    ids.insert(table.from_keys(Keys{code & 3, (code >> 2) & 3, (code >> 4) & 3, (code >> 6) & 3}));
  }
  CHECK(ids.size() == 15);
  CHECK(table.size() == 15);
}

TEST_CASE("partition: text, and the edge of one replica") {
  PartitionTable table(4);
  CHECK(table.to_string(table.top()) == "{0,1,2,3}");
  CHECK(table.to_string(table.bottom()) == "{0}{1}{2}{3}");
  CHECK(table.to_string(table.from_keys(Keys{9, 5, 9, 1})) == "{0,2}{1}{3}");
  PartitionTable one(1);
  CHECK(one.top() == one.bottom());
  CHECK(one.to_string(one.top()) == "{0}");
  CHECK_THROWS_WITH_AS(PartitionTable(0), "replication: too few replicas, got 0, expected 1 to 1048576",
                       ReplicaError);
  CHECK_THROWS_WITH_AS(PartitionTable(kMaxReplicas + 1),
                       "replication: too many replicas, got 1048577, expected 1 to 1048576", ReplicaError);
  CHECK_THROWS_AS(table.from_keys(Keys{0, 0}), InternalError);
}

TEST_CASE("partition: the value type compares by blocks, also between tables") {
  const Partition rows = Partition::from_labels(Keys{0, 0, 1, 1});
  const Partition columns = Partition::from_labels(Keys{5, 3, 5, 3});
  CHECK(rows == Partition::from_labels(Keys{8, 8, 2, 2}));
  CHECK_FALSE(rows == columns);
  CHECK(rows.meet(columns).to_string() == "{0}{1}{2}{3}");
  CHECK(rows.join(columns).to_string() == "{0,1,2,3}");
  CHECK(rows.meet(columns).refines(columns));
  CHECK(rows.join(rows.meet(columns)) == rows);  // of one table
  CHECK_FALSE(rows.refines(columns));
  CHECK(columns.blocks() == std::vector<std::vector<Replica>>{{0, 2}, {1, 3}});
  CHECK_THROWS_WITH_AS(rows.meet(Partition::from_labels(Keys{0, 0})),
                       "partition: replica counts differ, got 4 and 2, expected equal", ReplicaError);
}

}  // namespace
}  // namespace popsr
