// Groupings: the tables of PopXL's from-stride and from-assignment forms.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/replica/replica_grouping.h"

namespace popsr {
namespace {

/// "001122" for [0, 0, 1, 1, 2, 2].
std::string digits(const ReplicaGrouping& grouping) {
  std::string text;
  for (const std::int64_t group : grouping.assignment()) text += static_cast<char>('0' + group);
  return text;
}

ReplicaGrouping from_digits(const std::string& text) {
  std::vector<std::int64_t> assignment;
  for (const char digit : text) assignment.push_back(digit - '0');
  return ReplicaGrouping::from_assignment(assignment);
}

using Map = std::vector<std::int64_t>;

struct StrideRow {
  std::int64_t replicas, stride;
  std::optional<std::int64_t> size;
  std::string assignment, transpose;
  bool transpose_is_const;
};

TEST_CASE("grouping: from stride and group size") {
  const std::vector<StrideRow> rows = {
      {8, 1, {}, "00000000", "01234567", true},
      {8, 2, {}, "01010101", "00112233", true},
      {8, 4, {}, "01230123", "00001111", true},
      {8, 8, {}, "01234567", "00000000", true},
      {8, 2, 2, "01012323", "00110011", false},
      {12, 2, 3, "010101232323", "001122001122", false},
      {12, 3, 2, "012012345345", "000111000111", false},
      {16, 2, 4, "0101010123232323", "0011223300112233", false},
      {8, 4, 1, "01234567", "00000000", true},
      {4, 2, 1, "0123", "0000", true},
      {1, 1, {}, "0", "0", true},
  };
  for (const StrideRow& row : rows) {
    CAPTURE(row.assignment);
    const auto grouping = ReplicaGrouping::from_stride(row.replicas, row.stride, row.size);
    CHECK(digits(grouping) == row.assignment);
    CHECK(grouping.is_const());
    CHECK(digits(grouping.transpose()) == row.transpose);
    CHECK(grouping.transpose().is_const() == row.transpose_is_const);
    CHECK(grouping.num_groups() * grouping.group_size() == row.replicas);
    CHECK(from_digits(row.assignment) == grouping);
    CHECK(grouping.const_grouping() == grouping);
  }
}

TEST_CASE("grouping: members are ascending, at the group's stride") {
  const auto grouping = ReplicaGrouping::from_stride(12, 2, 3);
  const auto members = grouping.members(9);
  CHECK(std::vector<Replica>(members.begin(), members.end()) == std::vector<Replica>{7, 9, 11});
  CHECK(grouping.index_in_group(9) == 1);
  CHECK(grouping.stride() == 2);
  for (std::int64_t g = 0; g < grouping.num_groups(); ++g) {
    for (std::int64_t k = 0; k < 3; ++k) {
      const auto replica = static_cast<Replica>((g / 2) * 6 + g % 2 + k * 2);
      CHECK(grouping.assignment()[replica] == g);
      CHECK(grouping.index_in_group(replica) == k);
    }
  }
  CHECK(ReplicaGrouping::from_stride(8, 4, 1).stride() == 1);
}

TEST_CASE("grouping: from assignment") {
  struct Row {
    std::string assignment, transpose;
    bool is_const, transpose_is_const;
  };
  const std::vector<Row> rows = {
      {"00110011", "01012323", false, true}, {"00111100", "01012323", false, true},
      {"0110", "0011", false, true},         {"010011", "001212", false, false},
      {"01100110", "00112233", false, true}, {"00011110", "01201233", false, false},
      {"0123", "0000", true, true},          {"0", "0", true, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.assignment);
    const ReplicaGrouping grouping = from_digits(row.assignment);
    CHECK(grouping.is_const() == row.is_const);
    CHECK(digits(grouping.transpose()) == row.transpose);
    CHECK(grouping.transpose().is_const() == row.transpose_is_const);
  }
}

TEST_CASE("grouping: a varying stride is kept by groups of constant stride") {
  struct Row {
    std::string assignment, parts;
    Map to_device, to_host;
  };
  const std::vector<Row> rows = {
      {"00110011", "00112233", {0, 1, 0, 1}, {0, 1}},
      {"00111100", "00112233", {0, 1, 1, 0}, {0, 1}},
      {"0110", "0123", {0, 1, 1, 0}, {0, 1}},
      {"010011", "012345", {0, 1, 0, 0, 1, 1}, {0, 1}},
      {"01100110", "01234567", {0, 1, 1, 0, 0, 1, 1, 0}, {0, 1}},
      {"00011110", "01234567", {0, 0, 0, 1, 1, 1, 1, 0}, {0, 3}},
      {"0101232323230101", "0101232345456767", {0, 1, 2, 3, 2, 3, 0, 1}, {0, 1, 2, 3}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.assignment);
    const ReplicaGrouping grouping = from_digits(row.assignment);
    CHECK(digits(grouping.const_grouping()) == row.parts);
    CHECK(grouping.const_grouping().is_const());
    CHECK(grouping.to_device_map() == row.to_device);
    CHECK(grouping.to_host_map() == row.to_host);
  }
}

TEST_CASE("grouping: partition and text") {
  PartitionTable table(4);
  CHECK(table.to_string(from_digits("0110").partition(table)) == "{0,3}{1,2}");
  CHECK(from_digits("0110").partition().to_string() == "{0,3}{1,2}");
  CHECK(from_digits("0110").to_string() == "ReplicaGrouping(assignment=[0, 1, 1, 0])");
  CHECK(from_digits("0101").to_string() ==
        "ReplicaGrouping(num_replicas=4, stride=2, group_size=2, num_groups=2)");
}

TEST_CASE("grouping: a text stays short for many replicas") {
  std::vector<std::int64_t> pairs(64);  // 0 and 1 swap places in every other pair
  for (std::size_t r = 0; r < pairs.size(); ++r) pairs[r] = static_cast<std::int64_t>((r % 2) ^ (r / 2 % 2));
  CHECK(ReplicaGrouping::from_assignment(pairs).to_string() ==
        "ReplicaGrouping(assignment=[0, 1, 1, ..., 1, 0], num_replicas=64, group_size=32, num_groups=2)");
  CHECK(from_digits("01100110011001100110011001100110").to_string() ==
        "ReplicaGrouping(assignment=[0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, "
        "0, 1, 1, 0, 0, 1, 1, 0])");
}

TEST_CASE("grouping: table of groups") {
  CHECK(from_digits("0110").table() ==
        "Group | Replicas\n"
        "------+---------\n"
        "    0 | 0, 3\n"
        "    1 | 1, 2");
  CHECK(ReplicaGrouping::from_stride(512, 16).table() ==
        "Group | Replicas\n"
        "------+--------------------------\n"
        "    0 | 0, 16, 32, ..., 480, 496\n"
        "    1 | 1, 17, 33, ..., 481, 497\n"
        "    2 | 2, 18, 34, ..., 482, 498\n"
        "  ... | ...\n"
        "   14 | 14, 30, 46, ..., 494, 510\n"
        "   15 | 15, 31, 47, ..., 495, 511");
}

TEST_CASE("grouping: groups by number") {
  const ReplicaGrouping grouping = from_digits("010011");
  const auto group = grouping.group(1);
  CHECK(std::vector<Replica>(group.begin(), group.end()) == std::vector<Replica>{1, 4, 5});
  CHECK(grouping.index_in_group(5) == 2);
  for (const std::int64_t number : {-1, 2}) {
    CHECK_THROWS_WITH_AS(grouping.group(number), doctest::Contains("there is no such group"), ReplicaError);
  }
}

TEST_CASE("grouping: what does not tile the replicas is refused") {
  struct Bad {
    std::int64_t replicas, stride;
    std::optional<std::int64_t> size;
    const char* text;
  };
  const char* const count_text = "replica_grouping: replica count out of range";
  const char* const stride_text = "replica_grouping: stride does not tile the replicas";
  const char* const size_text = "replica_grouping: groups do not tile the replicas";
  const std::vector<Bad> rows = {{8, 0, {}, stride_text}, {8, -1, 2, stride_text},
                                 {8, 3, {}, stride_text}, {8, 16, {}, stride_text},
                                 {8, 4, 4, size_text},    {8, 1, 3, size_text},
                                 {8, 2, 3, size_text},    {8, 1, 0, size_text},
                                 {8, 1, 9, size_text},    {4, 3, 1, stride_text},
                                 {12, 4, 2, size_text},   {4, 4, 2, size_text},
                                 {8, 1, -2, size_text},   {0, 1, {}, count_text},
                                 {-8, 1, 1, count_text},  {std::int64_t{1} << 40, 1, {}, count_text}};
  for (const Bad& row : rows) {
    CAPTURE(row.stride);
    CHECK_THROWS_WITH_AS(ReplicaGrouping::from_stride(row.replicas, row.stride, row.size),
                         doctest::Contains(row.text), ReplicaError);
  }
}

TEST_CASE("grouping: bad assignments are refused") {
  const auto refused = [](const std::vector<std::int64_t>& assignment, const char* text) {
    CHECK_THROWS_WITH_AS(ReplicaGrouping::from_assignment(assignment), doctest::Contains(text), ReplicaError);
  };
  refused({}, "empty assignment");
  refused({0, 0, 1}, "groups differ in size");
  refused({1, 1, 0, 0}, "not numbered from 0 in order of first appearance, got [1, 1, 0, 0] with group 1");
  refused({0, 2, 0, 2}, "not numbered from 0");
  refused({0, -1}, "group -1 at replica 1, expected 0 to 1 there");
  refused({0, 1, 1}, "groups differ in size, got [0, 1, 1] with sizes 1 to 2");
  refused(std::vector<std::int64_t>(100, 1), "got [1, 1, 1, ..., 1, 1]");
}

}  // namespace
}  // namespace popsr
