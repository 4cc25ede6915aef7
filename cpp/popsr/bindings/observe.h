// Recordings of a session, for Python.
#pragma once

#include <memory>

#include "popsr/bindings/bindings.h"
#include "popsr/runtime/observe/recorder.h"
#include "popsr/runtime/session/session.h"

namespace popsr::bindings {

/// The recording of a session's runs.
class Observation {
 public:
  /// `sink`: called with the bytes of the recording, piece by piece.
  void record(Session& session, const py::object& sink);
  void end(Session& session);

 private:
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace popsr::bindings
