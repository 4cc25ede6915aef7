// The program. Python holds ids; every accessor takes the id and answers with plain values.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "popsr/base/containers/slab.h"
#include "popsr/base/error.h"
#include "popsr/base/no_memory.h"
#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/program/program.h"
#include "popsr/bindings/python_values.h"
#include "popsr/bindings/records.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/print.h"
#include "popsr/kernels/float_env.h"
#include "popsr/ops/flops.h"
#include "popsr/ops/registry.h"
#include "popsr/transform/graph_editor.h"

namespace popsr::bindings {
namespace {

using Handle = std::shared_ptr<Ir>;
using Operands = py::typing::List<std::optional<int>>;
using Attributes = py::typing::Dict<py::str, py::object>;

/// All Irs of Python are programs.
Program& program_of(Ir& ir) { return static_cast<Program&>(ir); }

std::vector<std::byte> room_for(std::size_t size) {
  try {
    return std::vector<std::byte>(size);
  } catch (const std::bad_alloc&) {
    throw NoMemory("constant", size);
  }
}

std::shared_ptr<const HostBytes> copy_data(const py::array& data) {
  POPSR_CHECK((data.flags() & py::array::c_style) != 0);
  std::vector<std::byte> bytes = room_for(static_cast<std::size_t>(data.nbytes()));
  if (!bytes.empty()) std::memcpy(bytes.data(), data.data(), bytes.size());
  return std::make_shared<const HostBytes>(std::move(bytes));
}

/// The array's own memory: a mapped file is not copied.
std::shared_ptr<const HostBytes> share_data(const py::array& data) {
  POPSR_CHECK((data.flags() & py::array::c_style) != 0);
  const auto release = [](const py::array* array) {
    const WithGil gil;
    delete array;
  };
  const std::shared_ptr<const void> owner(new py::array(data), release);
  const auto* begin = static_cast<const std::byte*>(data.data());
  return std::make_shared<const HostBytes>(owner, std::span(begin, static_cast<std::size_t>(data.nbytes())),
                                           true);
}

/// Zeros that take no memory: they are never written, so that the system has one page for all of them. Null
/// where it does not give any.
std::shared_ptr<const HostBytes> zeros(std::size_t size) {
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  const std::shared_ptr<const void> owner(data, [size](void* pages) { ::munmap(pages, size); });
  return std::make_shared<const HostBytes>(owner, std::span(static_cast<const std::byte*>(data), size));
}

/// A copy of the array where a session may read it: variables that nothing writes stay there.
std::shared_ptr<const HostBytes> keep_data(const py::array& data) {
  POPSR_CHECK((data.flags() & py::array::c_style) != 0);
  constexpr std::size_t kLeastPages = std::size_t{1} << 16;
  const auto size = static_cast<std::size_t>(data.nbytes());
  const auto* const begin = static_cast<const std::byte*>(data.data());
  const bool is_zero =
      size >= kLeastPages && begin[0] == std::byte{0} && std::memcmp(begin, begin + 1, size - 1) == 0;
  if (is_zero) {
    if (std::shared_ptr<const HostBytes> none = zeros(size)) return none;
  }
  std::shared_ptr<const Slab> room;
  try {
    room = std::make_shared<const Slab>(size, Slab::Fill::kNone);
  } catch (const std::bad_alloc&) {
    throw NoMemory("variable", size);
  }
  if (size > 0) std::memcpy(room->data(), begin, size);
  const std::span<const std::byte> bytes(room->data(), size);
  return std::make_shared<const HostBytes>(std::move(room), bytes);
}

std::vector<std::pair<std::string, Attribute>> read_attributes(const Ir& ir, const OpDef& def,
                                                               const Attributes& given) {
  std::vector<std::pair<std::string, Attribute>> attrs;
  attrs.reserve(given.size());
  for (const auto& [key, value] : given) {
    auto name = key.cast<std::string>();
    const auto attr = std::ranges::find(def.attrs, name, &AttrDef::name);
    // A name that the op does not declare: emit() reports it.
    Attribute converted = attr == def.attrs.end() ? Attribute() : to_attribute(ir, def, *attr, value);
    attrs.emplace_back(std::move(name), std::move(converted));
  }
  return attrs;
}

std::vector<TensorId> read_inputs(const Ir& ir, const Operands& given) {
  std::vector<TensorId> inputs;
  inputs.reserve(given.size());
  for (const py::handle& input : given) {
    inputs.push_back(input.is_none() ? kNone : checked_tensor(ir, input.cast<TensorId>()));
  }
  return inputs;
}

/// The name of a dtype as a Python str, made once: never freed.
py::handle name_of(DType dtype) {
  static std::array<PyObject*, kNumDTypes> names = {};
  PyObject*& name = names[static_cast<std::size_t>(dtype)];
  if (name == nullptr) name = py::str(std::string(info(dtype).name)).release().ptr();
  return name;
}

Record<"NewTensor"> describe_new(const Ir& ir, TensorId id) {
  const Tensor& tensor = ir.tensor(id);
  return Record<"NewTensor">::of(id, tensor.name, name_of(tensor.type.dtype), to_tuple(tensor.type.shape),
                                 to_tuple(tensor.meta_shape));
}

Record<"Emitted"> emit(Ir& ir, GraphId graph, const std::string& op, const Operands& inputs,
                       const Attributes& attrs, std::vector<std::string> output_names, LocationId location,
                       int sequence, bool allow_stochastic, std::uint32_t ipu, bool io_tiles,
                       bool derivative) {
  const kernels::FloatEnvironment environment;
  const OpDef& def = ir.registry().at(op);
  std::vector<TensorId> tensors = read_inputs(ir, inputs);
  if (needs_one_place(def)) check_places(ir, op, tensors);
  const OpId id = ir.emit(checked_graph(ir, graph), op, std::move(tensors),
                          {.attrs = read_attributes(ir, def, attrs),
                           .output_names = std::move(output_names),
                           .origin = {.location = location,
                                      .place = {ipu, io_tiles ? TileSet::kIo : TileSet::kCompute},
                                      .derivative = derivative},
                           .sequence = static_cast<SequenceMode>(sequence),
                           .allow_stochastic = allow_stochastic});
  return Record<"Emitted">::of(
      id, tuple_of(ir.op(id).outputs, [&ir](TensorId output) { return describe_new(ir, output); }));
}

/// Ops that are marked as parts of backward passes.
std::vector<OpId> derivatives_of(const Ir& ir) {
  std::vector<OpId> found;
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    if (ir.op(id).origin.derivative) found.push_back(id);
  }
  return found;
}

/// The sum of the terms, which may need more than 64 bits.
py::int_ flops_of_op(const Ir& ir, OpId id) {
  py::int_ sum(0);
  for (const FlopTerm& term : flops_of(ir, ir.op(checked_op(ir, id)))) {
    sum = sum + py::int_(term.elements) * py::int_(term.each);
  }
  return sum;
}

std::vector<std::optional<TensorId>> inputs_of(const Ir& ir, OpId id) {
  std::vector<std::optional<TensorId>> inputs;
  for (const TensorId input : ir.op(checked_op(ir, id)).inputs) {
    inputs.push_back(input == kNone ? std::nullopt : std::optional(input));
  }
  return inputs;
}

Attributes attributes_of(const Ir& ir, OpId id) {
  const Op& op = ir.op(checked_op(ir, id));
  Attributes attrs;
  for (std::size_t i = 0; i < op.attrs.size(); ++i) {
    attrs[py::str(std::string(op.def->attrs[i].name))] = to_python(op.attrs[i]);
  }
  return attrs;
}

Record<"DevicePlacement"> describe(const Place& place) {
  return Record<"DevicePlacement">::of(place.ipu, std::string(to_string(place.tiles)));
}

std::string_view name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::kActivation:
      return "activation";
    case TensorKind::kInput:
      return "input";
    case TensorKind::kVariable:
      return "variable";
    case TensorKind::kConstant:
      return "constant";
    case TensorKind::kShard:
      return "shard";
    case TensorKind::kRemote:
      return "remote";
  }
  POPSR_CHECK(false);
}

Record<"TensorInfo"> describe_tensor(const Ir& ir, TensorId id) {
  const Tensor& tensor = ir.tensor(checked_tensor(ir, id));
  return Record<"TensorInfo">::of(tensor.name, tensor.graph, name_of(tensor.type.dtype),
                                  to_tuple(tensor.type.shape), to_tuple(tensor.meta_shape),
                                  std::string(name_of(tensor.kind)), tensor.memory.by_ref,
                                  tensor.memory.storage, optional_id(tensor.uses.producer));
}

std::optional<Record<"DevicePlacement">> placement_of(const Ir& ir, TensorId id) {
  const std::optional<Place> place = place_of(ir, checked_tensor(ir, id));
  if (!place) return std::nullopt;
  return describe(*place);
}

StreamMode read_mode(const std::string& mode) {
  if (mode == "groups") return StreamMode::kGroups;
  if (mode == "broadcast") return StreamMode::kBroadcast;
  return mode == "equal" ? StreamMode::kEqual : StreamMode::kReplicate;
}

std::string_view name_of(StreamMode mode) {
  switch (mode) {
    case StreamMode::kReplicate:
      return "replicate";
    case StreamMode::kBroadcast:
      return "broadcast";
    case StreamMode::kEqual:
      return "equal";
    case StreamMode::kGroups:
      return "groups";
  }
  POPSR_CHECK(false);
}

Record<"StreamInfo"> describe_stream(const Ir& ir, StreamId id) {
  POPSR_CHECK(id.index() < ir.num_streams());
  const Stream& stream = ir.stream(id);
  return Record<"StreamInfo">::of(stream.name, name_of(stream.type.dtype), to_tuple(stream.type.shape),
                                  stream.to_device, std::string(name_of(stream.mode)));
}

std::optional<py::array_t<std::uint8_t>> data_of(const Ir& ir, TensorId id) {
  const Tensor& tensor = ir.tensor(checked_tensor(ir, id));
  if (!tensor.state.data) return std::nullopt;
  // Read-only view; the array keeps the bytes alive.
  auto* owner = new std::shared_ptr<const HostBytes>(tensor.state.data);
  const py::capsule capsule(owner, [](void* p) { delete static_cast<std::shared_ptr<const HostBytes>*>(p); });
  py::array_t<std::uint8_t> view(static_cast<py::ssize_t>(tensor.state.data->size()),
                                 reinterpret_cast<const std::uint8_t*>(tensor.state.data->data()), capsule);
  view.attr("flags").attr("writeable") = false;
  return view;
}

/// None for a variable that lives neither in a shard nor in an entry of a remote buffer.
std::optional<Record<"VariableHome">> describe_home(const Ir& ir, TensorId id) {
  const Tensor& tensor = ir.tensor(checked_tensor(ir, id));
  if (tensor.state.home == kNone) return std::nullopt;
  return Record<"VariableHome">::of(tensor.state.home, tensor.state.shard_over);
}

RemoteId checked_remote(const Ir& ir, RemoteId id) {
  POPSR_CHECK(id.index() < ir.num_remotes());
  return id;
}

Record<"RemoteBufferInfo"> describe_remote(const Ir& ir, RemoteId id) {
  const RemoteBuffer& buffer = ir.remote(checked_remote(ir, id));
  return Record<"RemoteBufferInfo">::of(name_of(buffer.type.dtype), to_tuple(buffer.type.shape),
                                        buffer.entries.size(), to_tuple(buffer.meta_shape));
}

/// Tensors that users see: all but entries of remote buffers.
std::vector<TensorId> tensors_of(const Ir& ir, GraphId graph) {
  std::vector<TensorId> tensors = ir.graph(graph).tensors;
  std::erase_if(tensors, [&ir](TensorId id) { return ir.tensor(id).kind == TensorKind::kRemote; });
  return tensors;
}

std::vector<TensorId> variables_of(const Ir& ir, GraphId graph) {
  std::vector<TensorId> tensors = ir.graph(graph).tensors;
  std::erase_if(tensors, [&ir](TensorId id) { return ir.tensor(id).kind != TensorKind::kVariable; });
  return tensors;
}

Record<"VariableInfo"> describe_variable(const Ir& ir, TensorId id) {
  const Tensor& tensor = ir.tensor(checked_tensor(ir, id));
  POPSR_CHECK(tensor.state.grouping.has_value());
  return Record<"VariableInfo">::of(*tensor.state.grouping,
                                    tensor.state.retrieval == VariableRetrievalMode::kAllReplicas);
}

/// Streams that an op of any graph loads or stores.
std::set<StreamId> streams_with_ops(const Ir& ir) {
  std::set<StreamId> streams;
  for (const OpId id : ids<OpId>(ir.num_ops())) {
    for (const Attribute& attr : ir.op(id).attrs) {
      if (const auto* stream = std::get_if<StreamId>(&attr)) streams.insert(*stream);
    }
  }
  return streams;
}

std::vector<GraphId> called_graphs(const Ir& ir, GraphId graph) {
  std::vector<GraphId> called;
  for (const OpId id : ir.graph(checked_graph(ir, graph)).ops) {
    for (const Attribute& attr : ir.op(id).attrs) {
      const auto* callee = std::get_if<GraphId>(&attr);
      if (callee != nullptr && std::ranges::find(called, *callee) == called.end()) {
        called.push_back(*callee);
      }
    }
  }
  return called;
}

TensorType read_type(const std::string& dtype, const Shape& shape) { return {dtype_from_name(dtype), shape}; }

Record<"Outlined"> outline(Ir& ir, GraphId graph, std::uint32_t first, std::int64_t count,
                           const std::string& stem, bool carries, LocationId location, std::uint32_t ipu,
                           bool on_io_tiles) {
  const GraphId id = checked_graph(ir, graph);
  POPSR_CHECK(count >= 1 && first < ir.graph(id).ops.size());
  Outlined made = GraphEditor(ir).outline(
      id, first,
      {.count = count,
       .stem = stem,
       .carries = carries,
       .origin = {.location = location, .place = {ipu, on_io_tiles ? TileSet::kIo : TileSet::kCompute}}});
  return Record<"Outlined">::of(made.body, made.op, std::move(made.moved));
}

void bind_building(py::class_<Ir, Handle>& ir) {
  ir.def(
        "create_graph", [](Ir& self, const std::string& stem) { return self.create_graph(stem); },
        py::arg("stem"))
      .def(
          "create_named_graph",
          [](Ir& self, const std::string& name) { return self.create_named_graph(name); }, py::arg("name"))
      .def("skip_subgraph_number", &Ir::skip_subgraph_number)
      .def(
          "add_input",
          [](Ir& self, GraphId graph, const std::string& name, const std::string& dtype, const Shape& shape,
             const Shape& meta_shape, bool by_ref) {
            return self.add_input(checked_graph(self, graph), name, read_type(dtype, shape), meta_shape,
                                  by_ref);
          },
          py::arg("graph"), py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("meta_shape"),
          py::arg("by_ref"))
      .def(
          "add_output",
          [](Ir& self, GraphId graph, TensorId tensor) {
            self.add_output(checked_graph(self, graph), checked_tensor(self, tensor));
          },
          py::arg("graph"), py::arg("tensor"))
      .def(
          "is_called",
          [](const Ir& self, GraphId graph) { return self.graph(checked_graph(self, graph)).called(); },
          py::arg("graph"))
      .def(
          "remove_output",
          [](Ir& self, GraphId graph, std::size_t index) {
            GraphEditor(self).remove_output(checked_graph(self, graph), index);
          },
          py::arg("graph"), py::arg("index"))
      .def(
          "add_variable",
          [](Ir& self, const std::string& name, const std::string& dtype, const Shape& shape,
             const py::array& data, const ReplicaGrouping& grouping, bool all_replicas, bool is_file,
             LocationId location) {
            return self.add_variable(
                name, read_type(dtype, shape), is_file ? share_data(data) : keep_data(data), grouping,
                all_replicas ? VariableRetrievalMode::kAllReplicas : VariableRetrievalMode::kOnePerGroup,
                location);
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("data"), py::arg("grouping"),
          py::arg("all_replicas"), py::arg("is_file"), py::arg("location"))
      .def(
          "add_constant",
          [](Ir& self, GraphId graph, const std::string& name, const std::string& dtype, const Shape& shape,
             const py::array& data) {
            return self.add_constant(checked_graph(self, graph), name, read_type(dtype, shape),
                                     copy_data(data));
          },
          py::arg("graph"), py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("data"))
      .def(
          "add_stream",
          [](Ir& self, const std::string& name, const std::string& dtype, const Shape& shape, bool to_device,
             const std::string& mode, const std::optional<ReplicaGrouping>& groups, LocationId location) {
            return self.add_stream(name, read_type(dtype, shape), to_device, read_mode(mode), location,
                                   groups);
          },
          py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("to_device"), py::arg("mode"),
          py::arg("groups"), py::arg("location"))
      .def(
          "location_of_stream",
          [](const Ir& self, StreamId id) {
            POPSR_CHECK(id.index() < self.num_streams());
            return self.locations().to_string(self.stream(id).location);
          },
          py::arg("id"))
      .def(
          "add_remote_buffer",
          [](Ir& self, const std::string& dtype, const Shape& shape, std::int64_t entries,
             const Shape& meta_shape) {
            return self.add_remote_buffer(read_type(dtype, shape), entries, meta_shape);
          },
          py::arg("dtype"), py::arg("shape"), py::arg("entries"), py::arg("meta_shape"))
      .def(
          "grow_remote_buffer",
          [](Ir& self, RemoteId buffer, std::int64_t entries) {
            GraphEditor(self).grow_remote_buffer(checked_remote(self, buffer), entries);
          },
          py::arg("buffer"), py::arg("entries"))
      .def(
          "set_meta_shape",
          [](Ir& self, RemoteId buffer, const Shape& meta_shape) {
            GraphEditor(self).set_meta_shape(checked_remote(self, buffer), meta_shape);
          },
          py::arg("buffer"), py::arg("meta_shape"))
      .def(
          "place_variable",
          [](Ir& self, TensorId variable, RemoteId buffer, std::int64_t entry, std::int64_t shard_over) {
            GraphEditor(self).place_variable(checked_tensor(self, variable), checked_remote(self, buffer),
                                             entry, shard_over);
          },
          py::arg("variable"), py::arg("buffer"), py::arg("entry"), py::arg("shard_over"))
      .def(
          "add_shard",
          [](Ir& self, TensorId variable, std::int64_t shard_over, const std::string& name) {
            return GraphEditor(self).add_shard(checked_tensor(self, variable), shard_over, name);
          },
          py::arg("variable"), py::arg("shard_over"), py::arg("name"))
      .def("emit", &emit, py::arg("graph"), py::arg("op"), py::arg("inputs"), py::arg("attrs"),
           py::arg("output_names"), py::arg("location"), py::arg("sequence"), py::arg("allow_stochastic"),
           py::arg("ipu"), py::arg("io_tiles"), py::arg("derivative"))
      .def(
          "add_called_input",
          [](Ir& self, GraphId graph, const std::string& name, const std::string& dtype, const Shape& shape,
             const Shape& meta_shape, bool by_ref, const std::vector<std::pair<OpId, TensorId>>& operands) {
            std::vector<SiteOperand> checked;
            for (const auto& [op, tensor] : operands) {
              checked.push_back({checked_op(self, op), checked_tensor(self, tensor)});
            }
            return GraphEditor(self).add_called_input(checked_graph(self, graph), name,
                                                      read_type(dtype, shape), meta_shape, by_ref, checked);
          },
          py::arg("graph"), py::arg("name"), py::arg("dtype"), py::arg("shape"), py::arg("meta_shape"),
          py::arg("by_ref"), py::arg("operands"))
      .def("outline", &outline, py::arg("graph"), py::arg("first"), py::arg("count"), py::arg("stem"),
           py::arg("carries"), py::arg("location"), py::arg("ipu"), py::arg("on_io_tiles"))
      .def(
          "mark_modified",
          [](Ir& self, OpId op, std::uint32_t index) {
            GraphEditor(self).mark_modified(checked_op(self, op), index);
          },
          py::arg("op"), py::arg("index"))
      .def(
          "clear_sequence",
          [](Ir& self, GraphId graph) { GraphEditor(self).clear_sequence(checked_graph(self, graph)); },
          py::arg("graph"))
      .def(
          "intern_location",
          [](Ir& self, const std::string& file, int line) { return self.locations().intern(file, line); },
          py::arg("file"), py::arg("line"));
}

PartitionId of_first_input(const RuleContext& context, std::size_t) {
  return context.inputs.empty() ? context.table.top() : context.inputs[0];
}

/// A program whose registry is a copy in which one op is wrong: tests show with it that they find such a
/// defect.
Handle with_defect(std::int64_t replication, const std::string& op, const std::string& defect) {
  auto registry = std::make_shared<Registry>(*default_registry());
  OpDef def = registry->at(op);
  if (defect == "equal everywhere") {
    def.replicas.partition = equal_everywhere;
  } else if (defect == "of the first input") {
    def.replicas.partition = of_first_input;
  } else if (defect == "meets nobody") {
    def.replicas.peers = Peers::kNone;
  } else {
    raise<AttributeValueError>(
        "with_defect: unknown defect, got '{}', expected 'equal everywhere', 'of the first input' or 'meets "
        "nobody'",
        defect);
  }
  registry->replace(std::move(def));
  return std::make_shared<Program>(replication, std::move(registry));
}

void bind_reading(py::class_<Ir, Handle>& ir) {
  ir.def_property_readonly("replication", &Ir::replication)
      .def_property_readonly("epoch", &Ir::epoch)
      .def_property_readonly("num_graphs", &Ir::num_graphs)
      .def_property_readonly("num_tensors", &Ir::num_tensors)
      .def_property_readonly("num_ops", &Ir::num_ops)
      .def_property_readonly("num_streams", &Ir::num_streams)
      .def(
          "graph_name",
          [](const Ir& self, GraphId graph) { return self.graph(checked_graph(self, graph)).name; },
          py::arg("graph"))
      .def(
          "graph_inputs",
          [](const Ir& self, GraphId graph) { return self.graph(checked_graph(self, graph)).inputs; },
          py::arg("graph"))
      .def(
          "graph_outputs",
          [](const Ir& self, GraphId graph) { return self.graph(checked_graph(self, graph)).outputs; },
          py::arg("graph"))
      .def(
          "graph_tensors",
          [](const Ir& self, GraphId graph) { return tensors_of(self, checked_graph(self, graph)); },
          py::arg("graph"))
      .def(
          "graph_variables",
          [](const Ir& self, GraphId graph) { return variables_of(self, checked_graph(self, graph)); },
          py::arg("graph"))
      .def(
          "graph_ops",
          [](const Ir& self, GraphId graph) { return self.graph(checked_graph(self, graph)).ops; },
          py::arg("graph"))
      .def("called_graphs", &called_graphs, py::arg("graph"))
      .def("ops_with_graphs", &Ir::ops_with_graphs)
      .def("tensor", &describe_tensor, py::arg("id"))
      .def("tensor_data", &data_of, py::arg("id"))
      .def("variable", &describe_variable, py::arg("id"))
      .def("place_of", &placement_of, py::arg("id"))
      .def(
          "check_places",
          [](const Ir& self, const std::string& where, const Operands& tensors) {
            check_places(self, where, read_inputs(self, tensors));
          },
          py::arg("where"), py::arg("tensors"))
      .def("home", &describe_home, py::arg("id"))
      .def("remote_buffer", &describe_remote, py::arg("id"))
      .def(
          "op_kind",
          [](const Ir& self, OpId id) { return std::string(self.op(checked_op(self, id)).def->name); },
          py::arg("id"))
      .def(
          "op_graph", [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).graph; },
          py::arg("id"))
      .def(
          "op_position",
          [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).schedule.position; },
          py::arg("id"))
      .def(
          "op_after", [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).schedule.after; },
          py::arg("id"))
      .def(
          "op_parts", [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).schedule.parts; },
          py::arg("id"))
      .def(
          "op_place",
          [](const Ir& self, OpId id) { return describe(self.op(checked_op(self, id)).origin.place); },
          py::arg("id"))
      .def("derivatives", &derivatives_of)
      .def("op_attributes", &attributes_of, py::arg("id"))
      .def("op_inputs", &inputs_of, py::arg("id"))
      .def("op_flops", &flops_of_op, py::arg("id"))
      .def(
          "op_modified", [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).call.modified; },
          py::arg("id"))
      .def(
          "op_outputs", [](const Ir& self, OpId id) { return self.op(checked_op(self, id)).outputs; },
          py::arg("id"))
      .def("stream", &describe_stream, py::arg("id"))
      .def("streams_with_ops", &streams_with_ops)
      .def(
          "location_of_variable",
          [](const Ir& self, TensorId tensor) {
            return self.locations().to_string(self.tensor(checked_tensor(self, tensor)).state.location);
          },
          py::arg("tensor"))
      .def(
          "location_of",
          [](const Ir& self, OpId id) {
            return self.locations().to_string(self.op(checked_op(self, id)).origin.location);
          },
          py::arg("id"))
      .def(
          "find_tensor",
          [](const Ir& self, GraphId graph, const std::string& name) {
            return self.find_tensor(checked_graph(self, graph), name);
          },
          py::arg("graph"), py::arg("name"))
      .def(
          "print_op", [](const Ir& self, OpId id) { return print_op(self, checked_op(self, id)); },
          py::arg("id"))
      .def(
          "print_graph",
          [](const Ir& self, GraphId graph) { return print_graph(self, checked_graph(self, graph)); },
          py::arg("graph"))
      .def("print_ir", [](const Ir& self) { return print_ir(self); })
      .def("print_state", [](const Ir& self) { return print_state(self); })
      .def("verify", [](const Ir& self) { verify(self); })
      .def("verify_order", [](const Ir& self) { verify_order(self); });
}

}  // namespace

GraphId checked_graph(const Ir& ir, GraphId id) {
  POPSR_CHECK(id.index() < ir.num_graphs());
  return id;
}

TensorId checked_tensor(const Ir& ir, TensorId id) {
  POPSR_CHECK(id.index() < ir.num_tensors());
  return id;
}

OpId checked_op(const Ir& ir, OpId id) {
  POPSR_CHECK(id.index() < ir.num_ops());
  return id;
}

void bind_ir(py::module_& m) {
  py::class_<Ir, Handle> ir(m, "Ir");
  guard(ir)
      .def(py::init([](std::int64_t replication) -> Handle {
             return std::make_shared<Program>(replication, default_registry());
           }),
           py::arg("replication") = 1)
      .def_static("with_defect", &with_defect, py::arg("replication"), py::arg("op"), py::arg("defect"))
      .def(
          "set_owner",
          [](Ir& self, const py::typing::List<py::object>& undo,
             const As<"collections.abc.Callable[..., object]">& rolled_back) {
            program_of(self).set_owner(undo, rolled_back);
          },
          py::arg("undo"), py::arg("rolled_back"))
      .def("join", [](Ir& self) { return program_of(self).join(); });
  bind_building(ir);
  bind_reading(ir);
  py::class_<OrderCheck> order(m, "OrderCheck");
  guard(order)
      .def(py::init([] { return std::make_unique<OrderCheck>(); }))
      .def(
          "run", [](OrderCheck& self, const std::shared_ptr<Ir>& program) { self.run(*program); },
          py::arg("ir"));
}

}  // namespace popsr::bindings
