// Memory that runs out where a program is analysed, compiled and run: an exception, and the next attempt
// works.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "popsr/base/threads/thread_pool.h"
#include "popsr/effects/verify.h"
#include "popsr/runtime/session/session.h"
#include "support/allocation_faults.h"
#include "support/program.h"

namespace popsr {
namespace {

using namespace test;
using Duration = AllocationFault::Duration;

/// x of each replica is added to a variable, after a loop and a product.
struct Training {
  Training() : p(4) {
    const TensorType matrix{DType::kFloat32, {4, 4}};
    w = p.variable("w", {}, matrix);
    x = p.load("x", StreamMode::kReplicate, matrix);
    p.at = p.ir.create_graph("step");
    const TensorId a = p.input("a", matrix), b = p.input("b", matrix);
    p.ir.add_output(p.at, p("tanh", {p("matmul", {a, b})}, "y"));
    const GraphId step = std::exchange(p.at, kMainGraph);
    const TensorId y = p("repeat", {x, w}, "looped", {{"graph", step}, {"count", std::int64_t{3}}});
    p("accumulate_", {w, p.all_reduce(y, p.groups(2, 2))}, "updated");
  }

  std::shared_ptr<const Ir> ir() const { return {std::shared_ptr<const Ir>(), &p.ir}; }

  Program p;
  TensorId w = kNone, x = kNone;
};

std::vector<float> weights_after(const Training& training, Session& session) {
  std::vector<float> input(4 * 16);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i) / 64;
  const StreamId stream = session.used_streams().at(0);
  IdVector<StreamId, StreamBuffer> buffers(training.p.ir.num_streams());
  buffers[stream] = {reinterpret_cast<std::byte*>(input.data()), 1};
  session.run(buffers, {}, {});
  std::vector<float> values(16);
  session.read_variable(training.w, HostRows::kGroups, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

TEST_CASE("allocation faults: partitions are interned once") {
  const std::vector<std::uint64_t> pairs{0, 0, 1, 1}, others{0, 1, 0, 1};
  PartitionTable table(4);
  with_each_fault(
      Duration::kOnce,
      [&] { table.join(table.from_keys(pairs), table.meet(table.from_keys(others), table.bottom())); },
      [&] {
        CHECK(table.from_keys(pairs) == table.from_keys(pairs));
        CHECK(table.to_string(table.from_keys(others)) == "{0,2}{1,3}");
      });
  const std::size_t size = table.size();
  CHECK(table.from_keys(pairs) != table.from_keys(others));
  CHECK(table.size() == size);
}

TEST_CASE("allocation faults: facts are found again") {
  for (const Duration duration : {Duration::kOnce, Duration::kForEver}) {
    Training training;
    const Expect like{{"w", ""}, {"looped", ""}, {"x", ""}};
    const Training reference;
    const Expect expected = facts_of(reference.p.ir, PartitionAnalysis(reference.p.ir), like);
    const std::int64_t faults = with_each_fault(
        duration, [&] { PartitionAnalysis facts(training.p.ir); },
        [&] { CHECK(facts_of(training.p.ir, PartitionAnalysis(training.p.ir), like) == expected); });
    CHECK(faults > 50);
  }
}

TEST_CASE("allocation faults: sessions are made and run again") {
  Training reference;
  Session session(reference.ir(), {.num_threads = 2});
  const std::vector<float> expected = weights_after(reference, session);
  for (const Duration duration : {Duration::kOnce, Duration::kForEver}) {
    Training training;
    const std::int64_t faults = with_each_fault(
        duration, [&] { Session attempt(training.ir(), {.num_threads = 2}); }, [] {});
    CHECK(faults > 100);
    Session after(training.ir(), {.num_threads = 2});
    CHECK(weights_after(training, after) == expected);
  }
}

TEST_CASE("allocation faults: what a part of parallel work throws comes out of it, and the pool works on") {
  ThreadPool pool(3);
  for (const int thrower : {0, 1, 2}) {
    const auto body = [&](int part) {
      if (part == thrower) throw std::bad_alloc();
    };
    CHECK_THROWS_AS(pool.run(3, body), std::bad_alloc);
    std::vector<int> done(3);
    pool.run(3, [&](int part) { done[static_cast<std::size_t>(part)] = 1; });
    CHECK(done == std::vector<int>{1, 1, 1});
  }
}

TEST_CASE("allocation faults: scratch memory that was refused is asked for again") {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  // A thread of its own: the scratch memory of this one may be large enough already.
  std::thread([] {
    CHECK(thread_scratch(64) != nullptr);
    {
      const AllocationFault fault(0);
      CHECK_THROWS_AS(thread_scratch(kBytes), std::bad_alloc);
    }
    CHECK(thread_scratch(64) != nullptr);
    std::memset(thread_scratch(kBytes), 1, kBytes);
  }).join();
}

}  // namespace
}  // namespace popsr
