// Stops of runs in every order of asking, beginning and ending.
#include "popsr/runtime/execution/run_stops.h"

#include <doctest/doctest.h>

#include "popsr/base/error.h"
#include "popsr/runtime/session/session.h"
#include "support/program.h"
#include "support/streams.h"

using namespace popsr;

TEST_CASE("stops: for the runs that were asked for before, and no later one") {
  RunStops stops;
  CHECK(stops.last() == 0);
  stops.stop_until(stops.last());  // there is none
  CHECK(stops.begin() == 1);
  CHECK_FALSE(stops.is_stopped(1));
  CHECK(stops.begin() == 2);  // waits for the first
  stops.stop_until(stops.last());
  CHECK(stops.is_stopped(1));
  CHECK(stops.is_stopped(2));
  CHECK(stops.begin() == 3);
  CHECK_FALSE(stops.is_stopped(3));
}

TEST_CASE("stops: one that is delayed ends no later run, and takes no later stop back") {
  RunStops stops;
  stops.begin();
  const std::uint64_t seen = stops.last();  // a thread asks, and sleeps
  stops.begin();
  stops.stop_until(seen);
  CHECK_FALSE(stops.is_stopped(2));
  stops.stop_until(2);
  stops.stop_until(seen);
  CHECK(stops.is_stopped(2));
}

TEST_CASE("stops: before the first op, and the next run starts anew") {
  test::Program p(1);
  const TensorId w = p.variable("w");
  p.emit("add_", {w, p("exp", {w}, "y")});
  Session session(test::borrow(p), {});
  test::Streams streams(p.ir);
  const std::uint64_t number = session.stops().begin();
  session.prepare(streams.buffers);
  session.stops().stop_until(number);
  CHECK(test::error_of<StoppedError>([&] {
          session.run_prepared(number, streams.buffers, {});
        }).find("run: stopped by Session.stop()") == 0);
  CHECK(session.step() == 0);
  session.run(streams.buffers, {});
  CHECK(session.step() == 1);
}
