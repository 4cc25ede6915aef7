#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "popsr/base/error.h"
#include "popsr/base/threads/thread_pool.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/bindings/session/observe.h"
#include "popsr/exec/host_io.h"
#include "popsr/exec/invalid_labels.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/runtime/check/label_errors.h"
#include "popsr/runtime/plan/memory_timeline.h"
#include "popsr/runtime/session/session.h"

namespace popsr::bindings {
namespace {

/// The process ends while a daemon thread runs a program.
struct ProcessExits {};

/// Moves the progress bar on, lets Ctrl-C and other signals end a run, and the end of the process.
class PythonWatcher final : public RunWatcher {
 public:
  /// `keeps_gil`: the run holds the GIL, and gives it up now and then.
  PythonWatcher(const py::object& progress, bool keeps_gil)
      : progress_(progress), keeps_gil_(keeps_gil), exits_(exits_begun()) {}

  void iterated(std::int64_t ended) override {
    if (progress_.is_none()) return;
    const WithGil gil;
    const kernels::FloatEnvironment environment;  // Python code may change it
    run_signal_handlers();
    call_python(progress_, py::make_tuple(ended));
  }

  void poll() override {
    if (exits_begun() != exits_) throw ProcessExits();
    if (keeps_gil_) {
      const WithoutGil for_others;
    }
    if (on_main_thread_ == false) return;  // signals are not for it
    const WithGil gil;
    const kernels::FloatEnvironment environment;
    if (!on_main_thread_) on_main_thread_ = is_main_thread();
    if (*on_main_thread_) run_signal_handlers();
  }

 private:
  static bool is_main_thread() {
    const py::object main = py::module_::import("threading").attr("main_thread");
    return call_python(main, py::tuple()).attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
  }

  const py::object& progress_;
  bool keeps_gil_;
  std::uint64_t exits_;
  std::optional<bool> on_main_thread_;  ///< Found out at the first look.
};

using Function = As<"collections.abc.Callable[..., object]">;

/// Session with the buffers that run() needs for each stream in use, computed once.
class SessionHandle {
 public:
  SessionHandle(const std::shared_ptr<Ir>& ir, const std::shared_ptr<PartitionAnalysis>& facts,
                const SessionOptions& options, std::shared_ptr<RankLink> link)
      : session_(ir, options, facts, std::move(link)), checks_(options.check > 0 || options.check_floats) {
    buffers_.resize(ir->num_streams());
    for (const StreamId id : session_.used_streams()) {
      const Stream& stream = ir->stream(id);
      const std::int64_t rows = session_.stream_rows(id).count();
      const auto size = static_cast<std::int64_t>(size_of(stream.type.dtype));
      streams_.push_back({id, stream.to_device, rows * num_elements(stream.type.shape) * size});
    }
  }

  Session& session() { return session_; }
  Observation& observation() { return observation_; }

  std::vector<StreamId> used_streams() const {
    std::vector<StreamId> ids;
    for (const UsedStream& stream : streams_) ids.push_back(stream.id);
    return ids;
  }

  /// Sets the transfers of streams without elements; for other streams they follow from the arrays.
  void set_transfers(std::int64_t transfers) { transfers_ = transfers; }

  /// Runs the session, as run `number` of its stops. `arrays`: one C-contiguous array per stream in use,
  /// checked for shape and dtype by the caller; they keep the buffers alive. `progress`: called with the
  /// number of iterations that have just ended, or None. `on_label`: called with the first op, once per
  /// session, that is given a label out of range, and a text. `on_plan_change`: see prepare(); an error of it
  /// is raised before anything runs.
  void run(std::uint64_t number, const py::typing::List<py::array>& arrays, const Function& print,
           const As<"collections.abc.Callable[[int], object] | None">& progress, const Function& on_label,
           const Function& on_plan_change) {
    POPSR_CHECK(arrays.size() == streams_.size());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      PyObject* item = PyList_GET_ITEM(arrays.ptr(), static_cast<py::ssize_t>(i));
      buffers_[streams_[i].id] = buffer_of(streams_[i], item, transfers_);
    }
    prepare(on_plan_change);
    try {
      run_without_gil(number, print, progress, on_label);
    } catch (const ProcessExits&) {  // ends the thread without a word
      PyErr_SetNone(PyExc_SystemExit);
      throw py::error_already_set();
    } catch (py::error_already_set& stop) {
      stop.value().attr("add_note")(
          fmt::format("run: {}, the variables hold the last update that completed", session_.stopped_text()));
      throw;
    }
  }

 private:
  struct UsedStream {
    StreamId id;
    bool to_device;
    std::int64_t nbytes;  ///< Bytes of one transfer to or from all replicas.
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

  /// Prepares a run with the GIL held, since choosing a plan may add to the partitions of the program.
  /// `on_plan_change`: called when the plan is used for the first time, with (stream, replica, replica,
  /// text) of streams whose rows were equal before.
  void prepare(const py::object& on_plan_change) {
    {
      const kernels::FloatEnvironment environment;  // kernels compute
      session_.prepare(buffers_);
    }
    if (session_.plan_changed()) {
      py::list weakened_streams;
      for (const RowDifference& each : session_.weakened_streams()) {
        weakened_streams.append(
            py::make_tuple(each.stream, each.r, each.s,
                           to_string(session_.ir(), session_.compared_rows(each.stream), each)));
      }
      call_python(on_plan_change, py::make_tuple(weakened_streams));
    }
    session_.acknowledge_plan();
  }

  /// Nothing in it touches Python objects but `print`, `progress` and `stray`, which take the GIL back.
  void run_without_gil(std::uint64_t number, const py::object& print, const py::object& progress,
                       const py::object& on_label) {
    const auto on_print = [&print](const PrintRequest& request) { deliver(print, request); };
    const auto on_invalid_label = [this, &on_label](const Op& op, const InvalidLabel& label) {
      const WithGil gil;
      call_python(on_label, py::make_tuple(op.id, invalid_label_text(session_.ir(), op, label)));
    };
    PythonWatcher watcher(progress, checks_);
    // Checks read the program's partitions, which other threads may add to: they keep the lock.
    std::optional<WithoutGil> released;
    if (!checks_) released.emplace();
    session_.run_prepared(number, buffers_, on_print, &watcher, on_invalid_label);
  }

  static void deliver(const py::object& print, const PrintRequest& request) {
    const WithGil gil;
    const kernels::FloatEnvironment environment;
    py::list values;
    for (const std::byte* value : request.values) values.append(copy_of_bytes(value, bytes_of(request.type)));
    call_python(print,
                py::make_tuple(request.op.id, request.shown, std::string(info(request.type.dtype).name),
                               to_tuple(request.type.shape), values));
  }

  Session session_;
  Observation observation_;
  bool checks_;
  std::int64_t transfers_ = 1;
  std::vector<UsedStream> streams_;
  IdVector<StreamId, StreamBuffer> buffers_;
};

std::unique_ptr<SessionHandle> make_session(const std::shared_ptr<Ir>& ir,
                                            const std::shared_ptr<PartitionAnalysis>& facts,
                                            std::uint64_t seed, bool dedup, double check, int num_threads,
                                            bool clamp_scales, bool strict_labels, bool check_floats,
                                            bool profile, bool optimise,
                                            const std::optional<std::shared_ptr<RankLink>>& link) {
  const kernels::FloatEnvironment environment;  // kernels compute
  const SessionOptions options{.seed = seed,
                               .dedup = dedup,
                               .check = check,
                               .num_threads = num_threads,
                               .clamp_scales = clamp_scales,
                               .strict_labels = strict_labels,
                               .check_floats = check_floats,
                               .optimise = optimise,
                               .profile = profile};
  const WithoutGil released;  // one Ir is for one thread at a time, but other threads have other work
  return std::make_unique<SessionHandle>(ir, facts, options, link.value_or(nullptr));
}

HostRows host_rows(bool all_replicas) { return all_replicas ? HostRows::kReplicas : HostRows::kGroups; }

/// Fills `out`, a C-contiguous array of exactly the rows' bytes.
void read_variable(SessionHandle& self, TensorId id, py::array out, bool all_replicas) {
  const Session& session = self.session();
  checked_tensor(session.ir(), id);
  POPSR_CHECK((out.flags() & py::array::c_style) != 0);
  POPSR_CHECK(static_cast<std::size_t>(out.nbytes()) == session.host_bytes(id, host_rows(all_replicas)));
  auto* data = static_cast<std::byte*>(out.mutable_data());
  const WithoutGil released;
  session.read_variable(id, host_rows(all_replicas), data);
}

using Piece = std::tuple<std::int64_t, std::size_t, std::optional<py::array_t<std::uint8_t>>>;

/// The groups' rows in order: the rank that has a piece of them, its size, and on that rank its read-only
/// bytes on the device: valid until the program runs or the variable is written.
std::vector<Piece> row_pieces(const py::object& session, TensorId id) {
  const Session& core = session.cast<SessionHandle&>().session();
  checked_tensor(core.ir(), id);
  std::vector<Piece> result;
  for (const RowPiece& piece : core.row_pieces(id)) {
    std::optional<py::array_t<std::uint8_t>> array;
    if (piece.data != nullptr) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(piece.data);
      array.emplace(std::vector{piece.bytes}, std::vector<std::size_t>{1}, data,
                    session);  // keeps the session
      array->attr("setflags")(false);
    }
    result.emplace_back(piece.rank, piece.bytes, std::move(array));
  }
  return result;
}

using GivenRows = std::tuple<TensorId, py::array, bool>;

/// Rows are compared with the GIL, as in SessionHandle::prepare, and copied without it.
void write_variables(SessionHandle& self, const std::vector<GivenRows>& given) {
  Session& session = self.session();
  std::vector<VariableRows> rows;
  for (const auto& [id, data, all_replicas] : given) {
    checked_tensor(session.ir(), id);
    POPSR_CHECK((data.flags() & py::array::c_style) != 0);
    POPSR_CHECK(static_cast<std::size_t>(data.nbytes()) == session.host_bytes(id, host_rows(all_replicas)));
    rows.push_back({id, host_rows(all_replicas), static_cast<const std::byte*>(data.data())});
  }
  std::vector<RowCopy> copies;
  {
    const kernels::FloatEnvironment environment;  // a plan may be made
    copies = session.prepare_write(rows);
  }
  const WithoutGil released;
  run_copies(copies);
}

Partition to_partition(SessionHandle& self, PartitionId id) {
  return {self.session().ir().partition_table(), id};
}

/// Partitions of the small streams: replicas whose rows are equal.
py::typing::Dict<int, Partition> small_streams(SessionHandle& self) {
  py::typing::Dict<int, Partition> result;
  for (const auto& [stream, rows] : self.session().small_streams()) {
    result[py::cast(stream)] = to_partition(self, rows);
  }
  return result;
}

std::optional<Record<"Divergence">> divergence(SessionHandle& self, TensorId id) {
  checked_tensor(self.session().ir(), id);
  const std::optional<Divergence> found = self.session().divergence(id);
  if (!found) return std::nullopt;
  return Record<"Divergence">::of(found->first, found->second, found->element);
}

Keyed<"SessionStats"> stats_of(SessionHandle& self) {
  using namespace py::literals;
  const SessionStats stats = self.session().stats();
  return py::dict("runs"_a = stats.runs, "kernel_calls"_a = stats.kernel_calls, "blocks"_a = stats.blocks);
}

/// The time of all runs in nanoseconds, and the instructions that ran.
std::pair<std::int64_t, std::vector<Record<"ProfiledInstruction">>> profile_of(SessionHandle& self) {
  const Profile profile = self.session().profile();
  std::vector<Record<"ProfiledInstruction">> instructions;
  for (const ProfiledInstruction& each : profile.instructions) {
    std::vector<std::pair<std::optional<OpId>, std::uint64_t>> ops;
    for (const auto& [op, blocks] : each.ops) {
      ops.emplace_back(op == kNone ? std::nullopt : std::optional(op), blocks);
    }
    instructions.push_back(Record<"ProfiledInstruction">::of(each.name, each.executions, each.time.count(),
                                                             each.bytes, std::move(ops)));
  }
  return {profile.time.count(), std::move(instructions)};
}

/// Bytes and messages that this rank sent, then received, by op.
py::typing::Dict<OpId, std::array<std::uint64_t, 4>> traffic_of(SessionHandle& self) {
  py::typing::Dict<OpId, std::array<std::uint64_t, 4>> result;
  for (const auto& [op, moved] : self.session().traffic()) {
    result[py::cast(op)] =
        std::array{moved.sent_bytes, moved.sent_messages, moved.received_bytes, moved.received_messages};
  }
  return result;
}

Keyed<"SessionMemory"> memory_of(SessionHandle& self) {
  using namespace py::literals;
  const SessionMemory memory = self.session().memory();
  return py::dict("variables"_a = memory.variables, "constants"_a = memory.constants,
                  "activations"_a = memory.activations, "streams"_a = memory.streams);
}

Record<"MemoryTimeline"> memory_timeline_of(SessionHandle& self) {
  const MemoryTimeline timeline = memory_timeline(self.session().plan());
  std::vector<Record<"MemoryStep">> steps;
  for (const MemoryStep& each : timeline.steps) {
    const auto op = each.op == kNone ? std::nullopt : std::optional(each.op);
    steps.push_back(Record<"MemoryStep">::of(op, each.live, each.extent));
  }
  std::vector<Record<"ArenaValue">> values;
  for (const ArenaValue& each : timeline.values) {
    values.push_back(Record<"ArenaValue">::of(each.tensor, each.offset, each.bytes, each.first, each.last));
  }
  return Record<"MemoryTimeline">::of(std::move(steps), std::move(values), timeline.arena,
                                      timeline.temporaries);
}

}  // namespace

void bind_session(py::module_& m) {
  m.def("set_num_threads", &set_default_threads, py::arg("threads"));
  m.def("build_info", [] {
    return std::map<std::string, std::string>{{"instruction set", kernels::kernel_table().level},
                                              {"compiler", __VERSION__}};
  });
  m.def("num_threads", &default_threads);
  m.def("kernel_levels", &kernels::available_levels);
  m.def(
      "use_kernel_level",
      [](const std::string& level) { kernels::use_kernel_table(kernels::kernel_table(level)); },
      py::arg("level"));
  py::class_<SessionHandle> session(m, "Session");
  guard(session)
      .def(py::init(&make_session))
      .def("used_streams", &SessionHandle::used_streams)
      .def(
          "local_rows",
          [](SessionHandle& self, StreamId stream) { return self.session().stream_rows(stream).rows(); },
          py::arg("stream"))
      .def("run", &SessionHandle::run, py::arg("number"), py::arg("arrays"), py::arg("print"),
           py::arg("progress"), py::arg("stray"), py::arg("news"))
      .def("set_transfers", &SessionHandle::set_transfers, py::arg("transfers"))
      .def("begin_run", [](SessionHandle& self) { return self.session().stops().begin(); })
      .def("stop",
           [](SessionHandle& self) {
             RunStops& stops = self.session().stops();
             stops.stop_until(stops.last());
           })
      .def(
          "is_stopped",
          [](SessionHandle& self, std::uint64_t number) { return self.session().stops().is_stopped(number); },
          py::arg("number"))
      .def_property_readonly("failed_op",
                             [](SessionHandle& self) -> std::optional<OpId> {
                               const OpId op = self.session().failed_op();
                               return op == kNone ? std::nullopt : std::optional(op);
                             })
      .def_property_readonly("iterations",
                             [](SessionHandle& self) { return self.session().plan().iterations(); })
      .def_property(
          "step", [](SessionHandle& self) { return self.session().step(); },
          [](SessionHandle& self, std::uint64_t step) { self.session().set_step(step); })
      .def("read_variable", &read_variable, py::arg("id"), py::arg("out"), py::arg("all_replicas"))
      .def("row_pieces", &row_pieces, py::arg("id"))
      .def("write_variables", &write_variables, py::arg("given"))
      .def("small_streams", &small_streams)
      .def("large_equal_streams", [](SessionHandle& self) { return self.session().large_equal_streams(); })
      .def_property_readonly("facts",
                             [](SessionHandle& self) {
                               // Python's handles hold facts that may be changed; nothing of them does.
                               return std::const_pointer_cast<PartitionAnalysis>(self.session().facts());
                             })
      .def("divergence", &divergence, py::arg("id"))
      .def(
          "is_written",
          [](SessionHandle& self, TensorId id) {
            return self.session().is_written(checked_tensor(self.session().ir(), id));
          },
          py::arg("id"))
      .def(
          "storage",
          [](SessionHandle& self, TensorId id) {
            const Ir& ir = self.session().ir();
            return Partition(ir.partition_table(), self.session().storage(checked_tensor(ir, id)));
          },
          py::arg("id"))
      .def(
          "record",
          [](SessionHandle& self, const As<"collections.abc.Callable[[bytes], object]">& sink) {
            self.observation().record(self.session(), sink);
          },
          py::arg("sink"))
      .def(
          "trace",
          [](SessionHandle& self, std::size_t limit) { self.observation().trace(self.session(), limit); },
          py::arg("limit"))
      .def("trace_events", [](SessionHandle& self) { return self.observation().events(); })
      .def("end_recording", [](SessionHandle& self) { self.observation().end_recording(self.session()); })
      .def("end_trace", [](SessionHandle& self) { self.observation().end_trace(self.session()); })
      .def("stats", &stats_of)
      .def("memory", &memory_of)
      .def("memory_timeline", &memory_timeline_of)
      .def("profile", &profile_of)
      .def("traffic", &traffic_of)
      .def("plan", [](SessionHandle& self) { return self.session().plan().to_string(); });
}

}  // namespace popsr::bindings
