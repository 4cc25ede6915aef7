#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "popsr/base/error.h"
#include "popsr/base/thread_pool.h"
#include "popsr/bindings/bindings.h"
#include "popsr/kernels/loader.h"
#include "popsr/runtime/session.h"
#include "popsr/runtime/stray_labels.h"

namespace popsr::bindings {
namespace {

/// Tells Python of iterations that ended: `progress` of each; without it, the handlers of signals now and
/// then, so that Ctrl-C ends a long run.
class Iterations {
 public:
  explicit Iterations(const py::object& progress) : progress_(progress) {}

  std::int64_t done() const { return done_; }

  void operator()(std::int64_t ended) {
    done_ += ended;
    if (progress_.is_none() && !time_to_look()) return;
    const py::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!progress_.is_none()) progress_(ended);
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Every 20 ms. Of short iterations it asks the clock only at one in 16.
  bool time_to_look() {
    if (++unseen_ < stride_) return false;
    unseen_ = 0;
    const Clock::time_point now = Clock::now();
    stride_ = now - seen_ < std::chrono::milliseconds(1) ? 16 : 1;
    seen_ = now;
    if (looked_ == Clock::time_point{}) looked_ = now;  // the first iteration
    if (now - looked_ < std::chrono::milliseconds(20)) return false;
    looked_ = now;
    return true;
  }

  const py::object& progress_;
  std::int64_t done_ = 0;
  int unseen_ = 0, stride_ = 1;
  Clock::time_point seen_ = {}, looked_ = {};
};

/// A session with what run() needs of each stream in use, worked out once.
class SessionHandle {
 public:
  SessionHandle(const std::shared_ptr<Ir>& ir, const std::shared_ptr<PartitionAnalysis>& facts,
                const SessionOptions& options)
      : session_(ir, options, facts), checks_(options.check > 0) {
    buffers_.resize(ir->num_streams());
    for (const StreamId id : session_.used_streams()) {
      const Stream& stream = ir->stream(id);
      const std::int64_t rows = stream.mode == StreamMode::kBroadcast ? 1 : ir->replication();
      const auto size = static_cast<std::int64_t>(size_of(stream.type.dtype));
      streams_.push_back({id, stream.to_device, rows * num_elements(stream.type.shape) * size});
    }
  }

  Session& session() { return session_; }

  std::vector<StreamId> used_streams() const {
    std::vector<StreamId> ids;
    for (const UsedStream& stream : streams_) ids.push_back(stream.id);
    return ids;
  }

  /// `arrays`: one C-contiguous array per stream in use, checked for shape and dtype by the caller.
  /// `progress`: called with the number of iterations that have just ended, or None. `stray`: called with
  /// the first op, once a session, that is given a label of no class, and what there is to say of it.
  void run(const py::list& arrays, std::int64_t transfers, const py::object& print,
           const py::object& progress, const py::object& stray) {
    POPSR_CHECK(arrays.size() == streams_.size());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      PyObject* item = PyList_GET_ITEM(arrays.ptr(), static_cast<py::ssize_t>(i));
      buffers_[streams_[i].id] = buffer_of(streams_[i], item, transfers);
    }
    const auto on_print = [&print](const PrintRequest& request) { deliver(print, request); };
    const auto on_stray = [this, &stray](const Op& op, const StrayLabel& label) {
      const py::gil_scoped_acquire acquire;
      stray(op.id, stray_text(session_.ir(), op, label));
    };
    Iterations iterations(progress);
    // Nothing below touches Python objects but on_print, on_stray and iterations, which take the lock back;
    // `arrays` keeps the buffers alive. Checks read the program's partitions, which other threads may add to:
    // they keep the lock.
    std::optional<py::gil_scoped_release> release;
    if (!checks_) release.emplace();
    try {
      session_.run(buffers_, on_print, std::ref(iterations), on_stray);
    } catch (py::error_already_set& stop) {
      const py::gil_scoped_acquire acquire;
      add_note(stop, iterations.done(), session_.plan().iterations());
      throw;
    }
  }

 private:
  struct UsedStream {
    StreamId id;
    bool to_device;
    std::int64_t nbytes;  ///< Of one transfer to or from all replicas.
  };

  static StreamBuffer buffer_of(const UsedStream& stream, py::handle item, std::int64_t transfers) {
    POPSR_CHECK(py::isinstance<py::array>(item));
    auto array = py::reinterpret_borrow<py::array>(item);
    POPSR_CHECK((array.flags() & py::array::c_style) != 0);
    // The runtime only reads streams to the device, so arrays that cannot be written are welcome there.
    const void* data = stream.to_device ? array.data() : array.mutable_data();
    if (stream.nbytes > 0) transfers = array.nbytes() / stream.nbytes;
    return {static_cast<std::byte*>(const_cast<void*>(data)), transfers};
  }

  static void add_note(const py::error_already_set& stop, std::int64_t done, std::int64_t all) {
    const std::string where =
        all > 1 ? fmt::format("stopped after {} of {} iterations", done, all) : "stopped";
    stop.value().attr("add_note")(
        fmt::format("run: {}, the variables hold the last update that completed", where));
  }

  static void deliver(const py::object& print, const PrintRequest& request) {
    py::gil_scoped_acquire acquire;
    py::list values;
    for (const std::byte* value : request.values) values.append(copy_of_bytes(value, bytes_of(request.type)));
    print(request.op.id, request.shown, std::string(info(request.type.dtype).name),
          to_tuple(request.type.shape), values);
  }

  Session session_;
  bool checks_;
  std::vector<UsedStream> streams_;
  std::vector<StreamBuffer> buffers_;
};

std::unique_ptr<SessionHandle> make_session(const std::shared_ptr<Ir>& ir,
                                            const std::shared_ptr<PartitionAnalysis>& facts,
                                            std::uint64_t seed, bool dedup, double check, int num_threads,
                                            bool clamp_scales, bool strict_labels) {
  const SessionOptions options{.seed = seed,
                               .dedup = dedup,
                               .check = check,
                               .num_threads = num_threads,
                               .clamp_scales = clamp_scales,
                               .strict_labels = strict_labels};
  return std::make_unique<SessionHandle>(ir, facts, options);
}

HostRows host_rows(bool all_replicas) { return all_replicas ? HostRows::kReplicas : HostRows::kGroups; }

/// Fills `out`, a C-contiguous array of exactly the rows' bytes.
void read_variable(SessionHandle& self, TensorId id, py::array out, bool all_replicas) {
  const Session& session = self.session();
  checked_tensor(session.ir(), id);
  POPSR_CHECK((out.flags() & py::array::c_style) != 0);
  POPSR_CHECK(static_cast<std::size_t>(out.nbytes()) == session.host_bytes(id, host_rows(all_replicas)));
  auto* data = static_cast<std::byte*>(out.mutable_data());
  const py::gil_scoped_release release;
  session.read_variable(id, host_rows(all_replicas), data);
}

/// Read-only bytes of the groups' rows in order, on the device: valid until the program runs or the variable
/// is written.
py::list row_views(const py::object& session, TensorId id) {
  const Session& core = session.cast<SessionHandle&>().session();
  checked_tensor(core.ir(), id);
  py::list result;
  for (const std::span<const std::byte> view : core.row_views(id)) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(view.data());
    py::array_t<std::uint8_t> array({view.size()}, {1}, data, session);  // keeps the session
    array.attr("setflags")(false);
    result.append(array);
  }
  return result;
}

void write_variable(SessionHandle& self, TensorId id, const py::array& data, bool all_replicas) {
  Session& session = self.session();
  checked_tensor(session.ir(), id);
  POPSR_CHECK((data.flags() & py::array::c_style) != 0);
  POPSR_CHECK(static_cast<std::size_t>(data.nbytes()) == session.host_bytes(id, host_rows(all_replicas)));
  const auto* bytes = static_cast<const std::byte*>(data.data());
  const py::gil_scoped_release release;
  session.write_variable(id, host_rows(all_replicas), bytes);
}

/// (replica, other replica, element) or None.
py::object divergence(SessionHandle& self, TensorId id) {
  checked_tensor(self.session().ir(), id);
  const std::optional<Divergence> found = self.session().divergence(id);
  if (!found) return py::none();
  return py::make_tuple(found->first, found->second, found->element);
}

py::dict stats_of(SessionHandle& self) {
  using namespace py::literals;
  const SessionStats stats = self.session().stats();
  return py::dict("runs"_a = stats.runs, "kernel_calls"_a = stats.kernel_calls, "blocks"_a = stats.blocks);
}

py::dict memory_of(SessionHandle& self) {
  using namespace py::literals;
  const SessionMemory memory = self.session().memory();
  return py::dict("variables"_a = memory.variables, "constants"_a = memory.constants,
                  "activations"_a = memory.activations, "streams"_a = memory.streams);
}

}  // namespace

void bind_session(py::module_& m) {
  m.def("set_num_threads", &set_default_threads, py::arg("threads"));
  m.def("build_info", [] {
    return std::map<std::string, std::string>{{"instruction set", kernels::kernel_table().level},
                                              {"compiler", __VERSION__}};
  });
  m.def("num_threads", &default_threads);
  py::class_<SessionHandle>(m, "Session")
      .def(py::init(&make_session))
      .def("used_streams", &SessionHandle::used_streams)
      .def("run", &SessionHandle::run)
      .def_property_readonly("failed_op",
                             [](SessionHandle& self) -> py::object {
                               const OpId op = self.session().failed_op();
                               return op == kNone ? py::object(py::none()) : py::int_(op);
                             })
      .def_property_readonly("iterations",
                             [](SessionHandle& self) { return self.session().plan().iterations(); })
      .def_property(
          "step", [](SessionHandle& self) { return self.session().step(); },
          [](SessionHandle& self, std::uint64_t step) { self.session().set_step(step); })
      .def("read_variable", &read_variable)
      .def("row_views", &row_views)
      .def("write_variable", &write_variable)
      .def("divergence", &divergence)
      .def("is_written",
           [](SessionHandle& self, TensorId id) {
             return self.session().is_written(checked_tensor(self.session().ir(), id));
           })
      .def("storage",
           [](SessionHandle& self, TensorId id) {
             const Ir& ir = self.session().ir();
             return Partition(ir.partition_table(), self.session().storage(checked_tensor(ir, id)));
           })
      .def("stats", &stats_of)
      .def("memory", &memory_of)
      .def("plan", [](SessionHandle& self) { return self.session().plan().to_string(); });
}

}  // namespace popsr::bindings
