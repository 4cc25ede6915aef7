// CommGroup and VariableSettings: PopART's rules for groups, representatives and shapes of host arrays.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/replica/comm_group.h"
#include "popsr/replica/variable_settings.h"

namespace popsr {
namespace {

using Type = CommGroupType;
using Mode = VariableRetrievalMode;

std::string groups_of(const ReplicaGrouping& grouping) { return grouping.partition().to_string(); }

TEST_CASE("comm group: to groupings and across") {
  struct Row {
    CommGroup group;
    std::string groups;
    CommGroup back, complement;
  };
  const std::vector<Row> rows = {
      {CommGroup(), "{0,1,2,3,4,5,6,7}", CommGroup(), CommGroup(Type::kUngrouped)},
      {CommGroup(Type::kAll, 3), "{0,1,2,3,4,5,6,7}", CommGroup(), CommGroup(Type::kUngrouped)},
      {CommGroup(Type::kConsecutive, 4), "{0,1,2,3}{4,5,6,7}", CommGroup(Type::kConsecutive, 4),
       CommGroup(Type::kOrthogonal, 2)},
      {CommGroup(Type::kConsecutive, 1), "{0}{1}{2}{3}{4}{5}{6}{7}", CommGroup(Type::kUngrouped),
       CommGroup(Type::kOrthogonal, 8)},
      {CommGroup(Type::kConsecutive, 8), "{0,1,2,3,4,5,6,7}", CommGroup(), CommGroup(Type::kOrthogonal, 1)},
      {CommGroup(Type::kOrthogonal, 2), "{0,4}{1,5}{2,6}{3,7}", CommGroup(Type::kOrthogonal, 2),
       CommGroup(Type::kConsecutive, 4)},
      {CommGroup(Type::kOrthogonal, 1), "{0}{1}{2}{3}{4}{5}{6}{7}", CommGroup(Type::kUngrouped),
       CommGroup(Type::kConsecutive, 8)},
      {CommGroup(Type::kUngrouped, 2), "{0}{1}{2}{3}{4}{5}{6}{7}", CommGroup(Type::kUngrouped), CommGroup()},
  };
  for (const Row& row : rows) {
    CAPTURE(row.group.to_string());
    const ReplicaGrouping grouping = row.group.to_replica_grouping(8);
    CHECK(groups_of(grouping) == row.groups);
    CHECK(CommGroup::from_replica_grouping(grouping) == row.back);
    CHECK(row.group.complement(8) == row.complement);
  }
}

TEST_CASE("comm group: the size counts in comparisons") {
  CHECK(CommGroup() == CommGroup(Type::kAll, 0));
  CHECK_FALSE(CommGroup(Type::kAll, 0) == CommGroup(Type::kAll, 1));
  CHECK_FALSE(CommGroup(Type::kConsecutive, 2) == CommGroup(Type::kOrthogonal, 2));
  CHECK(CommGroup(Type::kOrthogonal, 2).to_string() == "CommGroup(CommGroupType.Orthogonal, 2)");
}

TEST_CASE("comm group: what has no groups is refused") {
  const auto refused = [](auto&& make, const char* text) {
    CHECK_THROWS_WITH_AS(make(), doctest::Contains(text), ReplicaError);
  };
  const char* const small = "comm_group: groups are too small";
  refused([] { return CommGroup(Type::kConsecutive, 0); }, small);
  refused([] { return CommGroup(Type::kOrthogonal, -2); }, small);
  refused([] { return CommGroup(Type::kAll, -1); }, "expected at least 0");
  for (const Type type : {Type::kConsecutive, Type::kOrthogonal}) {
    const char* const text = "comm_group: size does not divide the replicas";
    refused([type] { return CommGroup(type, 3).to_replica_grouping(8); }, text);
    refused([type] { return CommGroup(type, 16).to_replica_grouping(8); }, text);
    refused([type] { return CommGroup(type, 3).complement(8); }, text);
    refused([type] { return CommGroup(type, 3).to_replica_grouping(0); }, text);
  }
  refused([] { return CommGroup().to_replica_grouping(0); }, "replica count out of range");
  const char* const none = "comm_group: no CommGroup has these groups";
  refused([] { return CommGroup::from_replica_grouping(ReplicaGrouping::from_stride(8, 2, 2)); }, none);
  const std::vector<std::int64_t> varying = {0, 1, 1, 0};
  refused([&] { return CommGroup::from_replica_grouping(ReplicaGrouping::from_assignment(varying)); }, none);
}

TEST_CASE("variable settings: queries") {
  struct Row {
    VariableSettings settings;
    std::int64_t groups, size;
    std::vector<Replica> representatives;
  };
  const std::vector<Row> rows = {
      {VariableSettings(), 1, 8, {0}},
      {VariableSettings(CommGroup(Type::kAll, 1)), 1, 8, {0}},
      {VariableSettings(CommGroup(Type::kUngrouped)), 8, 1, {0, 1, 2, 3, 4, 5, 6, 7}},
      {VariableSettings(CommGroup(Type::kConsecutive, 4)), 2, 4, {0, 4}},
      {VariableSettings(CommGroup(Type::kOrthogonal, 2)), 4, 2, {0, 1, 2, 3}},
      {VariableSettings(2, 2), 4, 2, {0, 1, 4, 5}},
      {VariableSettings(5, 1), 8, 1, {0, 1, 2, 3, 4, 5, 6, 7}},
      {VariableSettings(ReplicaGrouping::from_assignment(std::vector<std::int64_t>{0, 1, 1, 0, 2, 2, 3, 3})),
       4,
       2,
       {0, 1, 4, 6}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.settings.to_string());
    CHECK(row.settings.group_count(8) == row.groups);
    CHECK(row.settings.group_size(8) == row.size);
    for (std::size_t g = 0; g < row.representatives.size(); ++g) {
      CHECK(row.settings.representative(8, static_cast<std::int64_t>(g)) == row.representatives[g]);
    }
    CHECK(row.settings.returned_count(8) == row.groups);
    CHECK_THROWS_AS(row.settings.representative(8, row.groups), ReplicaError);
  }
}

/// The number that `count` returns, or the text of its ReplicaError.
template <class Count>
std::string outcome(Count count) {
  try {
    return std::to_string(count());
  } catch (const ReplicaError& error) {
    return error.what();
  }
}

TEST_CASE("variable settings: groups are counted without tables as with them, errors included") {
  for (std::int64_t replicas = -1; replicas <= 12; ++replicas) {
    for (std::int64_t size = 1; size <= 13; ++size) {
      CAPTURE(replicas);
      CAPTURE(size);
      for (const Type type : {Type::kAll, Type::kConsecutive, Type::kOrthogonal, Type::kUngrouped}) {
        const VariableSettings settings(CommGroup(type, size));
        CHECK(outcome([&] { return settings.group_count(replicas); }) ==
              outcome([&] { return settings.replica_grouping(replicas).num_groups(); }));
      }
      for (std::int64_t stride = 1; stride <= 13; ++stride) {
        CAPTURE(stride);
        const VariableSettings settings(stride, size);
        CHECK(outcome([&] { return settings.group_count(replicas); }) ==
              outcome([&] { return settings.replica_grouping(replicas).num_groups(); }));
        CHECK(outcome([&] { return settings.group_size(replicas); }) ==
              outcome([&] { return settings.replica_grouping(replicas).group_size(); }));
      }
    }
  }
}

TEST_CASE("variable settings: counting the groups of many replicas takes no memory per replica") {
  // With tables this takes minutes: 12 MiB each time.
  const std::int64_t replicas = std::int64_t{1} << 20;
  std::int64_t total = 0;
  for (int i = 0; i < 100'000; ++i) {
    total += VariableSettings(1 << (i % 20), 2).group_count(replicas);
    total += VariableSettings(CommGroup(Type::kOrthogonal, 4)).group_count(replicas);
  }
  CHECK(total == 100'000 * (replicas / 2 + replicas / 4));
}

TEST_CASE("variable settings: shapes of host arrays") {
  const Shape shape = {2, 3, 4};
  for (const Mode mode : {Mode::kOnePerGroup, Mode::kAllReplicas, Mode::kAllReduceReplicas}) {
    CAPTURE(to_string(mode));
    const VariableSettings pairs(CommGroup(Type::kConsecutive, 2), mode);
    CHECK(pairs.shape_on_host(shape, 4) == Shape{2, 2, 3, 4});
    CHECK(pairs.shape_on_replica({2, 2, 3, 4}, 4) == shape);
    CHECK(pairs.returned_shape(shape, 4) == Shape{mode == Mode::kAllReplicas ? 4 : 2, 2, 3, 4});
    const VariableSettings all(mode);
    CHECK(all.shape_on_host(shape, 4) == shape);
    CHECK(all.shape_on_replica(shape, 4) == shape);
    CHECK(all.returned_shape(shape, 4) == (mode == Mode::kAllReplicas ? Shape{4, 2, 3, 4} : shape));
    CHECK(all.returned_shape(shape, 1) == shape);
  }
  const VariableSettings pairs(1, 2);
  CHECK(pairs.shape_on_host({}, 4) == Shape{2});
  for (const Shape& full : {Shape{}, Shape{4, 2}, Shape{3}}) {
    CHECK_THROWS_WITH_AS(pairs.shape_on_replica(full, 4, "w"), doctest::Contains("of 'w', got shape ["),
                         ShapeError);
  }
}

TEST_CASE("variable settings: comparison and text") {
  CHECK(VariableSettings() == VariableSettings(CommGroup(), Mode::kOnePerGroup));
  CHECK(VariableSettings(3, 1) == VariableSettings(1, 1));
  const std::vector<VariableSettings> different = {
      VariableSettings(),
      VariableSettings(Mode::kAllReplicas),
      VariableSettings(CommGroup(Type::kAll, 1)),
      VariableSettings(CommGroup(Type::kConsecutive, 2)),
      VariableSettings(1, 2),
      VariableSettings(1, 2, Mode::kAllReduceReplicas),
      VariableSettings(ReplicaGrouping::from_stride(4, 1, 2)),
  };
  for (std::size_t i = 0; i < different.size(); ++i) {
    for (std::size_t j = 0; j < different.size(); ++j) CHECK((different[i] == different[j]) == (i == j));
  }
  CHECK(VariableSettings(3, 1, Mode::kAllReplicas).to_string() ==
        "VariableSettings(1, 1, VariableRetrievalMode.AllReplicas)");
}

TEST_CASE("variable settings: representatives of groups, of any number of replicas and of one") {
  struct Row {
    VariableSettings settings;
    std::vector<Replica> first;  ///< The first replica of groups 0, 1 and 2.
  };
  const std::vector<Row> rows = {
      {VariableSettings(CommGroup(Type::kConsecutive, 4)), {0, 4, 8}},
      {VariableSettings(CommGroup(Type::kOrthogonal, 4)), {0, 1, 2}},
      {VariableSettings(CommGroup(Type::kUngrouped)), {0, 1, 2}},
      {VariableSettings(2, 2), {0, 1, 4}},
      {VariableSettings(ReplicaGrouping::from_stride(12, 2, 2)), {0, 1, 4}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.settings.to_string());
    for (std::int64_t group = 0; group < 3; ++group) {
      CHECK(row.settings.representative(group) == row.first[static_cast<std::size_t>(group)]);
      CHECK(row.settings.representative(12, group) == row.first[static_cast<std::size_t>(group)]);
    }
    CHECK_THROWS_AS(row.settings.representative(-1), ReplicaError);
  }
  const VariableSettings all(CommGroup(Type::kAll));
  CHECK(all.representative(0) == 0);
  CHECK_THROWS_WITH_AS(all.representative(1), doctest::Contains("no number of replicas has such a group"),
                       ReplicaError);
  CHECK_THROWS_AS(VariableSettings(CommGroup(Type::kConsecutive, 4)).representative(std::int64_t{1} << 40),
                  ReplicaError);
}

TEST_CASE("variable settings: what has no groups is refused") {
  for (const auto& [stride, size] : {std::pair{0, 1}, {1, 0}, {-1, 2}, {0, 0}}) {
    CHECK_THROWS_WITH_AS(VariableSettings(stride, size),
                         doctest::Contains("variable_settings: groups are too small"), ReplicaError);
  }
  CHECK_THROWS_AS(VariableSettings(2, 3).group_count(8), ReplicaError);
  CHECK_THROWS_AS(VariableSettings(CommGroup(Type::kConsecutive, 3)).returned_count(8), ReplicaError);
  CHECK_THROWS_WITH_AS(VariableSettings(ReplicaGrouping::from_stride(4)).group_count(8),
                       doctest::Contains("another replica count, got 8 replicas, expected 4"), ReplicaError);
}

}  // namespace
}  // namespace popsr
