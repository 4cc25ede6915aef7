// Streams and prints, by which a program exchanges values with the host, and initial values of tensors.
#include <algorithm>
#include <cstring>
#include <map>

#include "popsr/base/error.h"
#include "popsr/exec/collective_kernel.h"
#include "popsr/exec/host_io.h"
#include "popsr/ops/attributes.h"
#include "popsr/ops/infer.h"
#include "popsr/ops/loops/blocks.h"
#include "popsr/ops/registry.h"
#include "popsr/ops/replicas/merged.h"

namespace popsr {
namespace {

constexpr Attr<StreamId> kH2dStream{"h2d_stream"};
constexpr Attr<StreamId> kD2hStream{"d2h_stream"};

constexpr Attr<std::string> kTitle{"title"};
constexpr Attr<bool> kPrintSelf{"print_self"};
constexpr Attr<bool> kPrintGradient{"print_gradient"};
constexpr Attr<std::int64_t> kSummariseThreshold{"summarise_threshold"};
constexpr Attr<std::int64_t> kEdgeItems{"edge_items"};
constexpr Attr<std::int64_t> kMaxLineWidth{"max_line_width"};
constexpr Attr<std::int64_t> kDigits{"digits"};
/// Read by the host when it prints.
enum class Notation : std::uint8_t { kAuto, kFixed, kScientific, kNone };
constexpr Choice<Notation> kFloatFormats[] = {{"auto", Notation::kAuto},
                                              {"fixed", Notation::kFixed},
                                              {"scientific", Notation::kScientific},
                                              {"none", Notation::kNone}};
constexpr ChoiceAttr<Notation> kFloatFormat{"float_format", kFloatFormats};
constexpr Attr<std::string> kSeparator{"separator"};
constexpr Attr<std::string> kOpenBracket{"open_bracket"};
constexpr Attr<std::string> kCloseBracket{"close_bracket"};

enum class InitType : std::uint8_t { kZero, kUndef };
constexpr Choice<InitType> kInitTypes[] = {{"zero", InitType::kZero}, {"undef", InitType::kUndef}};
constexpr ChoiceAttr<InitType> kInitType{"init_type", kInitTypes};

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// host_load

const Stream& stream_of(const InferContext& context, const Attr<StreamId>& attr, bool to_device) {
  const Stream& stream = context.ir.stream(context.get(attr));
  if (stream.to_device != to_device) {
    raise<GraphError>("{}: stream '{}' goes the other way, got a {} stream, expected a {} stream",
                      context.name(), stream.name, stream.to_device ? "host-to-device" : "device-to-host",
                      to_device ? "host-to-device" : "device-to-host");
  }
  return stream;
}

std::vector<OutputDef> infer_host_load(const InferContext& context) {
  return {{stream_of(context, kH2dStream, true).type}};
}

PartitionId host_load_partition(const RuleContext& context, std::size_t) {
  // The analysis passes which replicas find equal data where they stand in the stream.
  PartitionId fact = context.exec;
  for (const PartitionId found : context.inputs) fact = context.table.meet(fact, found);
  return fact;
}

bool host_load_popart(const PopartContext& context, std::size_t) {
  const Stream& stream = context.ir.stream(context.op.get(kH2dStream));
  if (stream.groups) return stream.groups->num_groups() == 1;
  return stream.mode != StreamMode::kReplicate;
}

CollectiveKernel host_load(const CollectiveSpec& spec) {
  return [stream = spec.op.get(kH2dStream), replicas = spec.out_replicas,
          bytes = bytes_of(spec.outputs[0])](const CollectiveRun& run) {
    for (std::size_t b = 0; b < replicas.size(); ++b) {
      if (run.active(replicas[b])) copy_bytes(out_block(run, 0, b), run.io.input(stream, replicas[b]), bytes);
    }
    run.io.advance(stream, run.active);
  };
}

// host_store

std::vector<OutputDef> infer_host_store(const InferContext& context) {
  const Stream& stream = stream_of(context, kD2hStream, false);
  if (context.type(0).dtype != stream.type.dtype) {
    raise<DTypeError>("{}: dtypes differ, got {} '{}', expected {} of stream '{}'", context.name(),
                      describe(context, 0), context.tensor(0).name, to_string(stream.type), stream.name);
  }
  if (context.type(0).shape != stream.type.shape) {
    raise<ShapeError>("{}: shapes differ, got {} '{}', expected {} of stream '{}'", context.name(),
                      describe(context, 0), context.tensor(0).name, to_string(stream.type), stream.name);
  }
  return {};
}

CollectiveKernel host_store(const CollectiveSpec& spec) {
  return [stream = spec.op.get(kD2hStream),
          labels = std::vector<std::uint32_t>(spec.in_labels[0].begin(), spec.in_labels[0].end()),
          bytes = bytes_of(*spec.inputs[0])](const CollectiveRun& run) {
    // The smallest replica of a group that shares a row comes last: its value is the one that stays.
    for (auto r = static_cast<Replica>(labels.size()); r-- > 0;) {
      if (labels[r] == kAbsentBlock || !run.active(r)) continue;
      copy_bytes(run.io.output(stream, r), in_block(run, 0, labels[r]), bytes);
    }
    run.io.advance(stream, run.active);
  };
}

// print_tensor

void require_one_char(const InferContext& context, const Attr<std::string>& attr) {
  const std::string& value = context.get(attr);  // UTF-8: bytes 10xxxxxx continue a character
  if (std::ranges::count_if(value, [](char c) { return (c & 0xC0) != 0x80; }) != 1) {
    raise<AttributeValueError>("{}: {} is not one character, got '{}', expected one character",
                               context.name(), attr.name, value);
  }
}

std::vector<OutputDef> infer_print(const InferContext& context) {
  for (const Attr<std::string>& attr : {kSeparator, kOpenBracket, kCloseBracket})
    require_one_char(context, attr);
  for (const Attr<std::int64_t>& attr : {kSummariseThreshold, kEdgeItems, kMaxLineWidth, kDigits}) {
    if (const std::int64_t value = context.get(attr); value < 0) {
      raise<AttributeValueError>("{}: negative {}, got {}, expected 0 or more", context.name(), attr.name,
                                 value);
    }
  }
  return same_as_input(context);
}

/// Prints each distinct value once: the output depends on values, not on how blocks are stored.
void print_values(const CollectiveRun& run, const Op& op, const TensorType& type,
                  const std::vector<std::uint32_t>& labels) {
  std::map<std::string_view, std::size_t> seen;
  PrintRequest request{op, type, {}, {}};
  for (Replica r = 0; r < labels.size(); ++r) {
    if (labels[r] == kAbsentBlock || !run.active(r)) continue;
    const std::byte* data = in_block(run, 0, labels[r]);
    const std::string_view bytes(reinterpret_cast<const char*>(data), bytes_of(type));
    const auto [it, is_new] = seen.try_emplace(bytes, request.values.size());
    if (is_new) request.values.push_back(data);
    request.shown.emplace_back(r, it->second);
  }
  if (!request.shown.empty()) run.io.print(request);
}

CollectiveKernel print_tensor(const CollectiveSpec& spec) {
  return
      [&op = spec.op, type = spec.outputs[0], replicas = spec.out_replicas, bytes = bytes_of(spec.outputs[0]),
       labels = std::vector<std::uint32_t>(spec.in_labels[0].begin(), spec.in_labels[0].end()),
       prints = spec.op.get(kPrintSelf)](const CollectiveRun& run) {
        if (prints) print_values(run, op, type, labels);
        for (std::size_t b = 0; b < replicas.size(); ++b) {
          if (run.active(replicas[b]))
            copy_bytes(out_block(run, 0, b), in_block(run, 0, labels[replicas[b]]), bytes);
        }
      };
}

/// dt = dout, printed on its way when asked for.
GradValue print_grad(Grad& g) {
  if (!g.get(kPrintGradient)) return g.dy();
  return g.call("print_tensor", {g.dy()},
                {kTitle(g.get(kTitle) + "_gradient"), kPrintSelf(true), kPrintGradient(false),
                 g.same(kSummariseThreshold), g.same(kEdgeItems), g.same(kMaxLineWidth), g.same(kDigits),
                 g.same(kFloatFormat), g.same(kSeparator), g.same(kOpenBracket), g.same(kCloseBracket)});
}

// Init

bool is_undefined(const Op& op) { return op.get(kInitType) == InitType::kUndef; }

std::vector<OutputDef> infer_init(const InferContext& context) {
  const Shape& shape = context.get(kShape);
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      raise<ShapeError>("{}: negative extent, got {}, expected 0 or more", context.name(), to_string(shape));
    }
  }
  return {{{context.get(kDType), shape}, context.get(kMetaShape)}};
}

PartitionId init_partition(const RuleContext& context, std::size_t) {
  return is_undefined(context.op) ? context.table.bottom() : context.exec;
}

ZeroFacts init_zeros(const Op& op, const std::vector<bool>&) { return {.clears = !is_undefined(op)}; }

/// Uninitialised memory: a value that no replica shares and that shows up at once (a NaN for floats).
std::uint64_t poison(DType dtype, Replica replica) {
  if (dtype == DType::kBool) return (replica & 1U) ^ 1U;
  const std::size_t bits = 8 * size_of(dtype);
  const std::size_t payload = bits == 8                   ? 7
                              : dtype == DType::kBFloat16 ? 6
                              : bits == 16                ? 9
                              : bits == 32                ? 16
                                                          : 32;
  const std::uint64_t mask = (std::uint64_t{1} << payload) - 1;
  return ~mask | (replica & mask);
}

CollectiveKernel init(const CollectiveSpec& spec) {
  return [undefined = is_undefined(spec.op), dtype = spec.outputs[0].dtype, replicas = spec.out_replicas,
          bytes = bytes_of(spec.outputs[0])](const CollectiveRun& run) {
    const std::size_t size = size_of(dtype);
    for (std::size_t b = 0; b < replicas.size(); ++b) {
      if (!run.active(replicas[b])) continue;
      std::byte* out = out_block(run, 0, b);
      const std::uint64_t word = undefined ? poison(dtype, replicas[b]) : 0;
      for (std::size_t i = 0; undefined && i < bytes; i += size) std::memcpy(out + i, &word, size);
      if (!undefined && bytes > 0) std::memset(out, 0, bytes);
    }
  };
}

/// Nobody's output is made of another replica's input.
PartitionId print_partition(const RuleContext& context, std::size_t output) {
  return meet_of_inputs(context, output);
}

std::vector<AttrDef> print_attrs() {
  return {optional(kTitle, ""),
          optional(kPrintSelf, true),
          optional(kPrintGradient, false),
          optional(kSummariseThreshold, 1000),
          optional(kEdgeItems, 3),
          optional(kMaxLineWidth, 75),
          optional(kDigits, 8),
          optional(kFloatFormat, Notation::kAuto),
          optional(kSeparator, " "),
          optional(kOpenBracket, "["),
          optional(kCloseBracket, "]")};
}

}  // namespace

std::vector<OpDef> host_io_ops() {
  return {
      {.name = "host_load",
       .attrs = {required(kH2dStream)},
       .infer = infer_host_load,
       .kernel = {.collective = host_load},
       .replicas = {.partition = host_load_partition,
                    .rule_text = "rows of the stream that are equal, by position",
                    .popart = host_load_popart},
       .program = {.merged = kMultiExchange}},
      {.name = "host_store",
       .inputs = {{"t"}},
       .attrs = {required(kD2hStream)},
       .infer = infer_host_store,
       .kernel = {.collective = host_store},
       .program = {.merged = kMultiExchange, .observable = true}},
      {.name = "print_tensor",
       .inputs = {{"t"}},
       .attrs = print_attrs(),
       .infer = infer_print,
       .kernel = {.collective = print_tensor},
       .grad = per_input({print_grad}),
       .replicas = {.partition = print_partition, .rule_text = "meet of inputs"},
       .program = {.observable = true}},
      {.name = "init",
       .attrs = {required(kShape), required(kDType), optional(kInitType, InitType::kZero),
                 optional(kMetaShape, Shape{})},
       .infer = infer_init,
       .kernel = {.collective = init},
       .replicas = {.partition = init_partition,
                    .rule_text = "equal everywhere; undefined memory: nothing in common"},
       .memory = {.zeros = init_zeros, .undefined = is_undefined}},
  };
}

}  // namespace popsr
