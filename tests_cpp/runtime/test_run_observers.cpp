// Recorder and tracer of one session at once: what each sees is what it sees alone, and times are without the
// recorder's work.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "popsr/runtime/observe/recorder.h"
#include "popsr/runtime/observe/tracer.h"
#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/streams.h"

using namespace popsr;

namespace {

using Clock = std::chrono::steady_clock;

/// Records, and the trace's events and names, of a session.
struct Seen {
  std::string records = {};
  std::vector<std::pair<std::uint32_t, std::uint32_t>> events = {};  ///< Slot and value of each.
  std::vector<std::string> names = {};
  bool operator==(const Seen&) const = default;
};

/// Follows a text: R and r, T and t begin and end a recording or a trace, and a point is a run.
Seen follow(std::string_view order, const test::Program& program, int threads) {
  Seen seen;
  Recorder recorder([&](std::string_view piece) { seen.records += piece; });
  Tracer tracer(1000);
  Session session(test::borrow(program), {.num_threads = threads});
  test::Streams streams(program.ir);
  for (const char each : order) {
    switch (each) {
      case 'R':
      case 'r':
        session.record(each == 'R' ? &recorder : nullptr);
        break;
      case 'T':
      case 't':
        session.trace(each == 'T' ? &tracer : nullptr);
        break;
      default:
        session.run(streams.buffers, {});
    }
  }
  for (const TraceEvent& event : tracer.events()) {
    CHECK(event.end >= event.begin);
    seen.events.emplace_back(event.slot, event.value);
  }
  for (const TraceSlot& slot : tracer.slots()) seen.names.push_back(slot.name);
  return seen;
}

std::string without(std::string_view order, std::string_view letters) {
  std::string rest(order);
  std::erase_if(rest, [&](char each) { return letters.find(each) != std::string_view::npos; });
  return rest;
}

struct SmallProgram : test::Program {
  SmallProgram() : Program(4) {
    const TensorId w = variable("w");
    emit("add_", {w, all_reduce((*this)("exp", {load("x")}, "y"), groups(1, 4), "sum")});
  }
};

}  // namespace

TEST_CASE("observers: each sees what it sees alone, in any order of beginning and ending") {
  const SmallProgram p;
  for (const std::string_view order : {"RT.rt", "RT.tr", "TR.rt", "TR.tr", "R.T.r.t", "T.R.t.r", "R.T.t.r",
                                       "T.R.r.t", "T.R.r.R.r.t.", "R.T.t.T.t.r.", "TR.rR.rt"}) {
    CAPTURE(order);
    for (const int threads : {1, 3}) {
      const Seen both = follow(order, p, threads);
      CHECK(both.records == follow(without(order, "Tt"), p, threads).records);
      const Seen traced = follow(without(order, "Rr"), p, threads);
      CHECK(both.events == traced.events);
      CHECK(both.names == traced.names);
      CHECK_FALSE(both.records.empty());
      CHECK_FALSE(both.events.empty());
    }
  }
}

TEST_CASE("observers: times of traces and profiles are without the recorder's") {
  test::Program p(64);
  TensorId x = p.load("x");
  for (int i = 0; i < 4500; ++i)
    x = p("exp", {x});  // records of more than 2 MiB: the sink is called in the run
  Session session(test::borrow(p), {.optimise = false, .profile = true});
  test::Streams streams(p.ir);
  Clock::duration in_sink{0};
  int calls = 0;
  Recorder recorder([&](std::string_view) {
    const auto begin = Clock::now();
    while (Clock::now() - begin < std::chrono::milliseconds(30)) {
    }
    in_sink += Clock::now() - begin;
    ++calls;
  });
  Tracer tracer(100'000);
  session.record(&recorder);
  session.trace(&tracer);
  session.run(streams.buffers, {});  // makes the plan
  const std::size_t before = tracer.events().size();
  const std::chrono::nanoseconds profiled_before = session.profile().time;
  calls = 0;
  in_sink = {};
  const auto begin = Clock::now();
  session.run(streams.buffers, {});
  session.run(streams.buffers, {});
  const Clock::duration all = Clock::now() - begin;
  REQUIRE(calls >= 4);
  const std::chrono::nanoseconds rest = all - in_sink;
  std::chrono::nanoseconds runs{0}, instructions{0};
  const std::span events = std::span(tracer.events()).subspan(before);
  for (const TraceEvent& event : events)
    (event.slot == TraceEvent::kRun ? runs : instructions) +=
        std::chrono::nanoseconds(event.end - event.begin);
  CHECK(instructions <= runs);
  CHECK(runs <= rest);
  CHECK(std::chrono::nanoseconds(events.back().end - events.front().begin) <= rest);
  const Profile profile = session.profile();
  std::chrono::nanoseconds profiled{0};
  for (const ProfiledInstruction& each : profile.instructions) profiled += each.time;
  CHECK(profiled <= profile.time);
  CHECK(profile.time - profiled_before <= rest);
}

TEST_CASE("observers: parts of threads in a trace are not the recorder's") {
  test::Program p(1);
  p.variable("large", {}, {DType::kFloat32, {1 << 22}});  // threads hash it together
  p.emit("add_", {p.variable("w"), p("exp", {p.load("x")}, "y")});
  Session session(test::borrow(p), {.num_threads = 4});
  test::Streams streams(p.ir);
  Recorder recorder([](std::string_view) {});
  Tracer tracer(1000);
  session.trace(&tracer);
  session.record(&recorder);
  for (int i = 0; i < 20; ++i) session.run(streams.buffers, {});
  REQUIRE(tracer.parts().threads.size() == 4);
  for (const std::vector<PartTimes::Span>& spans : tracer.parts().threads) CHECK(spans.empty());
}

TEST_CASE("observers: an error of the recorder's sink ends the run and leaves the trace") {
  const SmallProgram p;
  Session session(test::borrow(p), {});
  test::Streams streams(p.ir);
  Recorder recorder([](std::string_view) { throw std::runtime_error("full"); });
  Tracer tracer(1000);
  session.record(&recorder);
  session.trace(&tracer);
  CHECK_THROWS_WITH(session.run(streams.buffers, {}), "full");
  const std::size_t events = tracer.events().size();
  CHECK(std::ranges::all_of(tracer.events(), [](const TraceEvent& each) { return each.end >= each.begin; }));
  session.record(nullptr);
  session.run(streams.buffers, {});
  CHECK(tracer.events().size() == 2 * events);
  session.trace(nullptr);
  session.run(streams.buffers, {});
  CHECK(tracer.events().size() == 2 * events);
}
