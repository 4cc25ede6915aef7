// Ranks: which replicas and blocks are whose, which blocks they send each other, what they agree about.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "popsr/base/error.h"
#include "popsr/replica/local_blocks.h"
#include "popsr/runtime/ranks/block_exchange.h"
#include "popsr/runtime/ranks/rank_link.h"
#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/streams.h"
#include "support/thread_world.h"

namespace popsr {
namespace {

using test::ThreadWorld;

TEST_CASE("ranks: consecutive replicas, the first ranks have one more") {
  for (std::int64_t replicas = 1; replicas <= 12; ++replicas) {
    for (std::int64_t ranks = 1; ranks <= replicas; ++ranks) {
      Replica next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const RankMap map{replicas, ranks, rank};
        CHECK(map.begin() == next);
        CHECK(map.end() - map.begin() == replicas / ranks + (rank < replicas % ranks ? 1 : 0));
        for (Replica r = map.begin(); r < map.end(); ++r) {
          CHECK(map.owner(r) == rank);
          CHECK(map.owns(r));
        }
        CHECK_FALSE(map.owns(map.end()));
        next = map.end();
      }
      CHECK(next == replicas);
    }
  }
}

PartitionId random_partition(PartitionTable& table, std::mt19937& rng) {
  std::vector<std::uint64_t> keys(static_cast<std::size_t>(table.replicas()));
  const auto kinds = 1 + rng() % keys.size();
  for (std::uint64_t& key : keys) key = rng() % kinds;
  return table.from_keys(keys);
}

TEST_CASE("ranks: local blocks are those with a replica of the rank, by its smallest one") {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 300; ++trial) {
    PartitionTable table(1 + static_cast<std::int64_t>(rng() % 9));
    const PartitionId id = random_partition(table, rng);
    const std::int64_t ranks = 1 + static_cast<std::int64_t>(rng()) % table.replicas();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const RankMap map{table.replicas(), ranks, rank};
      const LocalBlocks blocks(table, map);
      std::map<std::uint32_t, std::uint32_t> numbers;
      std::vector<Replica> first;
      for (Replica r = map.begin(); r < map.end(); ++r) {
        const auto next = static_cast<std::uint32_t>(numbers.size());
        if (numbers.try_emplace(table.labels(id)[r], next).second) first.push_back(r);
      }
      CHECK(blocks.num_blocks(id) == static_cast<std::int64_t>(first.size()));
      CHECK(std::ranges::equal(blocks.representatives(id), first));
      for (Replica r = 0; r < static_cast<Replica>(table.replicas()); ++r) {
        const auto it = numbers.find(table.labels(id)[r]);
        CHECK(blocks.labels(id)[r] == (it == numbers.end() ? std::uint32_t{kAbsentBlock} : it->second));
      }
    }
  }
}

TEST_CASE("ranks: each block that a rank sees and lacks comes once, from the lowest rank that has it") {
  std::mt19937 rng(2);
  for (int trial = 0; trial < 300; ++trial) {
    PartitionTable table(2 + static_cast<std::int64_t>(rng() % 8));
    const auto replicas = static_cast<Replica>(table.replicas());
    const PartitionId id = random_partition(table, rng);
    const std::int64_t ranks = 1 + static_cast<std::int64_t>(rng()) % table.replicas();
    std::vector<SeenReplicas> seen(static_cast<std::size_t>(ranks), SeenReplicas(replicas));
    for (SeenReplicas& each : seen) {
      for (std::uint8_t& flag : each) flag = rng() % 2;
    }
    std::vector<LocalBlocks> blocks;
    std::vector<Halo> halos;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      blocks.emplace_back(table, RankMap{table.replicas(), ranks, rank});
      halos.push_back(halo_of(table, blocks.back(), id, seen));
    }
    // Delivers messages in their order: (rank, block in its memory) -> global block.
    std::map<std::pair<std::int64_t, std::uint32_t>, std::uint32_t> memory;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const LocalBlocks& own = blocks[static_cast<std::size_t>(rank)];
      for (const Replica r : own.representatives(id)) memory[{rank, own.labels(id)[r]}] = table.labels(id)[r];
    }
    for (std::int64_t to = 0; to < ranks; ++to) {
      std::map<std::int64_t, std::size_t> taken;
      std::set<std::uint32_t> got;
      for (const Halo::Message& in : halos[static_cast<std::size_t>(to)].incoming) {
        std::vector<Halo::Message> sent;
        for (const Halo::Message& out : halos[static_cast<std::size_t>(in.rank)].outgoing) {
          if (out.rank == to) sent.push_back(out);
        }
        REQUIRE(taken[in.rank] < sent.size());
        const std::uint32_t block = memory.at({in.rank, sent[taken[in.rank]++].block});
        CHECK(got.insert(block).second);
        CHECK(in.rank == RankMap{table.replicas(), ranks, 0}.owner(table.representatives(id)[block]));
        CHECK(memory.try_emplace({to, in.block}, block).second);
      }
      for (const auto& [from, count] : taken) {
        CHECK(static_cast<std::int64_t>(count) ==
              std::ranges::count(halos[static_cast<std::size_t>(from)].outgoing, to, &Halo::Message::rank));
      }
      const RankMap map{table.replicas(), ranks, to};
      const Halo& halo = halos[static_cast<std::size_t>(to)];
      for (Replica r = 0; r < replicas; ++r) {
        if (!map.owns(r) && seen[static_cast<std::size_t>(to)][r] == 0) {
          CHECK(halo.labels[r] == kAbsentBlock);
        } else {
          CHECK(memory.at({to, halo.labels[r]}) == table.labels(id)[r]);
        }
      }
      CHECK(halo.num_received == static_cast<std::int64_t>(halo.incoming.size()));
    }
  }
}

/// The text of the error that each rank gets of a call; empty without one.
std::vector<std::string> errors_of(std::int64_t ranks, const std::function<void(RankLink&)>& call) {
  ThreadWorld world(ranks);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  world.run([&](std::int64_t rank) {
    RankLink link(world.transport(rank));
    try {
      call(link);
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(rank)] = failure_of(std::current_exception()).kind + ": " + error.what();
    }
    const bool is_failure_shared = link.is_failure_shared();
    CHECK(is_failure_shared == !texts[static_cast<std::size_t>(rank)].empty());
  });
  return texts;
}

TEST_CASE("ranks: equal calls are agreed upon, others name the first difference on all ranks") {
  const auto all = [](std::string text) { return std::vector<std::string>(3, std::move(text)); };
  const auto call = [](std::string seed, std::string lines) {
    return call_of("run", {{"seed", std::move(seed)}, {"the program", std::move(lines)}});
  };
  CHECK(errors_of(3, [&](RankLink& link) { link.agree_or_raise(call("1", "a\nb")); }) == all(""));
  CHECK(errors_of(3, [&](RankLink& link) { link.agree_or_raise(call(link.rank() < 2 ? "1" : "2", "a")); }) ==
        all("RankError: run: ranks differ in seed, got 1 on rank 0 and 2 on rank 2, expected the same on all "
            "ranks"));
  CHECK(errors_of(
            3, [&](RankLink& link) { link.agree_or_raise(call("1", link.rank() == 1 ? "a\nc" : "a\nb")); }) ==
        all("RankError: run: ranks differ in the program, got b on rank 0 and c on rank 1, expected the same "
            "on all ranks"));
  CHECK(
      errors_of(3,
                [&](RankLink& link) { link.agree_or_raise(call("1", link.rank() == 2 ? "a\nb" : "a")); }) ==
      all("RankError: run: ranks differ in the program, got nothing on rank 0 and b on rank 2, expected the "
          "same on all ranks"));
  CHECK(errors_of(3,
                  [](RankLink& link) {
                    link.agree_or_raise(call_of(link.rank() == 0 ? "run" : "read variable w", {}));
                  }) ==
        all("RankError: session: ranks make other calls, got run on rank 0 and read variable w "
            "on rank 1, expected the same calls in the same order on all ranks"));
}

TEST_CASE("ranks: the first failure is raised on all ranks, with its class") {
  const auto fail = [](std::int64_t at_rank_1) {
    return errors_of(3, [at_rank_1](RankLink& link) {
      if (link.rank() == 0) return link.agree_or_raise(call_of("run", {}));
      RankFailure mine{.at = link.rank() == 1 ? static_cast<std::uint64_t>(at_rank_1) : 5,
                       .kind = link.rank() == 1 ? "ShapeError" : "",
                       .text = link.rank() == 1 ? "a shape" : "a text\nof two lines"};
      raise_failure(link.agree({}, &mine).value());
    });
  };
  CHECK(fail(4) == std::vector<std::string>(3, "ShapeError: a shape"));
  CHECK(fail(5) == std::vector<std::string>(3, "ShapeError: a shape"));
  CHECK(fail(6) == std::vector<std::string>(
                       3, "StoppedError: run: rank 2 ended it, got a text, expected no error of a rank"));
}

TEST_CASE("ranks: a flag holds if it does on all of them") {
  ThreadWorld world(3);
  world.run([&](std::int64_t rank) {
    RankLink link(world.transport(rank));
    const auto last = static_cast<std::uint8_t>(rank == 1 ? 0 : 1);
    const std::vector<std::uint8_t> found = link.all_of({1, 0, last});
    const bool is_right = found == std::vector<std::uint8_t>{1, 0, 0};
    CHECK(is_right);
  });
}

/// The text of the error that each rank gets in a run of 5 replicas that claim that values are equal.
std::vector<std::string> errors_of_wrong_rule(std::int64_t ranks) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef relu = registry->at("relu");
  relu.replicas.partition = equal_everywhere;
  registry->replace(relu);
  ThreadWorld world(ranks);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  world.run([&](std::int64_t rank) {
    test::Program p(5, registry);
    const TensorId x = p.load("x");
    p("replicated_all_reduce", {p("relu", {x}, "y")});
    test::Streams streams(p.ir);
    const auto link = std::make_shared<RankLink>(world.transport(rank));
    Session session(test::borrow(p), {.check = 1, .num_threads = 1}, nullptr, ranks > 1 ? link : nullptr);
    StreamBuffer& own = streams.buffers[StreamId(0)];
    own.data += link->map(5).begin() * bytes_of(test::kVector);
    try {
      session.run(streams.buffers, {});
    } catch (const ReplicaError& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

TEST_CASE("ranks: values that differ although they were proved equal are found and named on all ranks") {
  const std::string alone = errors_of_wrong_rule(1).front(), pair = "replicas 0 and 1";
  CHECK(alone.starts_with("check: 'y' differs between " + pair + " after relu"));
  for (const std::int64_t ranks : {2, 3, 5}) {
    std::string text = alone;
    text.insert(text.find(pair) + pair.size(), ranks == 5 ? " of ranks 0 and 1" : " of rank 0");
    CHECK(errors_of_wrong_rule(ranks) == std::vector<std::string>(static_cast<std::size_t>(ranks), text));
  }
}

}  // namespace
}  // namespace popsr
