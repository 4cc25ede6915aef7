// Results that are remembered for a while: never another key's.
#include <doctest/doctest.h>

#include <map>
#include <random>
#include <utility>

#include "popsr/analysis/gradients/step_memo.h"

using namespace popsr;

TEST_CASE("a remembered step is the last one that was put there, or forgotten") {
  Recent<LocalStep, int> recent;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> all;
  std::mt19937 random(1);
  int found = 0;
  for (int i = 0; i < 20'000; ++i) {
    const LocalStep key{.share = static_cast<std::uint32_t>(random() % 30),
                        .with = static_cast<std::uint32_t>(random() % 30),
                        .kind = LocalStep::Kind::kInGradients};
    const auto it = all.find({key.share, key.with});
    if (const int* const known = recent.find(key)) {
      REQUIRE(it != all.end());
      REQUIRE(*known == it->second);
      ++found;
    } else {
      recent.put(key, i);
      all[{key.share, key.with}] = i;
    }
  }
  CHECK(found > 1'000);  // 900 keys, far more than there are places
}

TEST_CASE("steps that differ in one member are different steps") {
  Recent<CollectiveStep, int> recent;
  const OpDef a{.name = "a"}, b{.name = "b"};
  const CollectiveStep key{.def = &a, .groups = 3, .share = 2, .exec = PartitionId(1U), .how = 1};
  recent.put(key, 7);
  REQUIRE(recent.find(key) != nullptr);
  CHECK(*recent.find(key) == 7);
  for (int member = 0; member < 6; ++member) {
    CollectiveStep other = key;
    if (member == 0) other.def = &b;
    if (member == 1) other.groups = 5;
    if (member == 2) other.share = 3;
    if (member == 3) other.exec = PartitionId(2U);
    if (member == 4) other.how = 2;
    if (member == 5) other.gradients = 1;
    CHECK(recent.find(other) == nullptr);
  }
  recent.clear();
  CHECK(recent.find(key) == nullptr);
}
