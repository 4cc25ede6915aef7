// OpDef: the definition of an op, plain data in aspects. Analysis, transforms and runtime know ops through
// this struct alone.
//
// Adding an op = one OpDef in cpp/popsr/ops/<family>/, its Python signature in
// python/popsr/ops/<family>.py and a row in tests_py/ops/rows. Defaults are the common case: the definition
// of a pure function of its inputs sets nothing more.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "popsr/base/layout/strided_view.h"
#include "popsr/ir/grad.h"
#include "popsr/ir/ir.h"
#include "popsr/ir/view/view.h"

namespace popsr {

namespace kernels {
enum class ElementwiseOp : int;
}

// Kernel contract (popsr/exec).
struct EvalSpec;
struct BlockRun;
struct CollectiveSpec;
struct CollectiveRun;
struct ProductRun;
struct RowsRun;
struct ProductFusion;
struct ReductionChain;

struct InputDef {
  std::string_view name;
  DTypeSet dtypes = kAnyDType;
  bool optional = false;
  bool influences = true;  ///< False if only the shape matters, or contents are overwritten unread.
  bool variadic = false;   ///< True for any number of tensors; the last input only.
  bool seed = false;       ///< True if the input seeds the random numbers that the op draws.
};

/// Write in place: output `output` is the allocation of input `input` after this op wrote it. If an
/// optional input is not given, there is neither the effect nor the output, which is then the last one.
struct Effect {
  std::size_t input = 0;
  std::size_t output = 0;
  bool in_popart = true;  ///< False if the reference's op writes the input too, but has no such output.
};

struct OutputDef {
  TensorType type;
  Shape meta_shape = {};
};

/// Argument of infer(): types of the inputs and the bound attributes.
struct InferContext {
  const Ir& ir;
  const Op& op;  ///< The op; inputs and attributes are set, outputs are not.

  bool has(std::size_t input) const { return input < op.inputs.size() && op.inputs[input] != kNone; }
  const Tensor& tensor(std::size_t input) const { return ir.tensor(op.inputs[input]); }
  const TensorType& type(std::size_t input) const { return tensor(input).type; }
  std::string_view name() const;
  template <class Handle>
  decltype(auto) get(const Handle& attr) const {
    return op.get(attr);
  }
  template <class Handle>
  auto find(const Handle& attr) const {
    return op.find(attr);
  }
};
using InferFn = std::vector<OutputDef> (*)(const InferContext&);

/// Argument of a partition rule: facts of the inputs as this op reads them.
struct RuleContext {
  PartitionTable& table;
  const Ir& ir;
  const Op& op;
  /// Fact of each input, top() if it is absent; facts of remote entries follow, or of the rows and position
  /// of a stream.
  std::span<const PartitionId> inputs;
  PartitionId exec;  ///< Replicas that certainly run this point together.
};
/// Fact of one output: the kernel of the key "replica -> what the value is made of"
/// (docs/replica_partitions.md).
using PartitionFn = PartitionId (*)(const RuleContext&, std::size_t output);

/// Default partition rule: meet of the inputs that influence the value.
PartitionId meet_of_inputs(const RuleContext& context, std::size_t output);
/// Partition rule of ops whose output is the same on all replicas, whatever the inputs are.
PartitionId equal_everywhere(const RuleContext& context, std::size_t output);

/// Reason why two replicas differ in an output: `input` differs between replicas r and s.
struct Witness {
  std::size_t input = 0;
  Replica r = 0, s = 0;
};
/// Witnesses of a rule that mixes replicas: inputs and pairs of which one must differ if replicas r and s
/// differ in `output`, unless the op itself distinguishes r and s. Facts decide which of them does.
using WitnessFn = std::vector<Witness> (*)(const Ir&, const Op&, std::size_t output, Replica r, Replica s);

/// Argument of a rule of mode "popart" (analysis/popart/popart_analysis.h).
struct PopartContext {
  const Ir& ir;
  const Op& op;
  std::vector<bool> inputs;  ///< Flag per input: equal on all replicas when the op reads it; true if absent.
};
/// Rule of mode "popart": true if the reference considers the output equal on all replicas, right or wrong.
using PopartFn = bool (*)(const PopartContext&, std::size_t output);

/// Default of the reference: equal if all inputs are, including inputs that cannot influence the value.
bool and_of_inputs(const PopartContext& context, std::size_t output);

/// Effect of an op on zeros (analysis/state_reads.h). A zero has no bit set.
struct ZeroFacts {
  bool clears = false;   ///< True if output 0 holds zeros.
  bool ignores = false;  ///< True if input 0 does not influence the outputs.
};
/// Effect on zeros, given the inputs that certainly hold zeros on all replicas.
using ZerosFn = ZeroFacts (*)(const Op&, const std::vector<bool>& zeros);

/// Parts of the inputs that output 0, which has no memory of its own, consists of.
using ViewFn = std::vector<ViewPart> (*)(const Ir&, const Op&);

/// Gradient rule that sets the gradients of the inputs (Grad::set).
using GradFn = void (*)(Grad&);
/// Gradient rule of one input; returns no value if there is no gradient.
using InputGradFn = GradValue (*)(Grad&);
using EachGradFn = GradValue (*)(Grad&, std::size_t input);

/// Device placement of an operand, by its number among the inputs or the outputs.
using PlaceFn = Place (*)(const Op&, std::size_t index);

enum class Rounding : std::uint8_t {
  kNone,  ///< Exact: data movement, selection, integers.
  kOnce,  ///< Narrow outputs are rounded once.
};
/// Peers of a replica: the replicas with which it exchanges values in an op and must run it together.
enum class Peers : std::uint8_t {
  kNone,   ///< No peers: a replica can run the op alone.
  kGroup,  ///< Members of its group in attribute kGroup; all replicas if that is absent.
  kAll
};
/// Inputs in which outputs are linear while the other inputs stay.
enum class Linear : std::uint8_t {
  kNone,
  kMove,   ///< All: output 0 holds the elements of input 0, and no others, in another form or dtype.
  kSum,    ///< All: each output is a sum of inputs, with signs.
  kAll,    ///< All together.
  kEach,   ///< Each of them alone: a product.
  kFirst,  ///< The first one alone: a quotient.
  kChoice  ///< All but the first one, which chooses.
};
enum class NoGrad : std::uint8_t { kStops, kThrows };
/// Function that a group, attribute kGroup, computes from its members' values of input 0.
enum class Collective : std::uint8_t {
  kNone,
  kReduce,     ///< Reduction of all members' values, by attribute kReduction.
  kGather,     ///< All members' values, one after the other.
  kBroadcast,  ///< Value of one member.
};
/// Reduction of a collective over the values of its members.
enum class CollectiveOp : std::uint8_t { kAdd, kMean, kMul, kMin, kMax, kAnd, kOr, kSquareAdd };
enum class Control : std::uint8_t { kNone, kCall, kRepeat, kConditional };
/// Use of the entries of the remote buffer in attribute "remote_buffer", which follow an op's own operands:
/// as inputs when it loads; as inputs and outputs when it stores (effects/remote_access.h).
enum class Remote : std::uint8_t { kNone, kLoads, kStores };

using EvalFn = std::function<void(const BlockRun&)> (*)(const EvalSpec&);
using CollectiveFn = std::function<void(const CollectiveRun&)> (*)(const CollectiveSpec&);
/// Maker of a product kernel; the result is null if there is none for the op's types.
using ProductFn = std::function<void(const ProductRun&)> (*)(const EvalSpec&);
/// Maker of a kernel for rows of a product; the result is null if the product is not a matrix.
using RowsFn = std::function<void(const RowsRun&)> (*)(const EvalSpec&);
/// Fusion parameters of a consumer; nullopt if this op does not fuse a product.
using FusionFn = std::optional<ProductFusion> (*)(const EvalSpec&);

/// Maker of a chain kernel; nullopt if the op is not a chain of additions.
using ChainFn = std::optional<ReductionChain> (*)(const EvalSpec&);

/// Relation to slices along the first axis. kJoined: output 0 is the inputs, one after the other; kAdded:
/// output 0 is the sum of the slices of input 0, in ascending order.
enum class Slices : std::uint8_t { kNone, kJoined, kAdded };
using SlicesFn = Slices (*)(const EvalSpec&);

/// View of input 0 that output 0 is a copy of.
using StridedFn = StridedView (*)(const EvalSpec&);

/// Number of floating point operations: `each` for each of `elements`.
struct FlopTerm {
  std::int64_t elements = 0;
  std::int64_t each = 1;
};
/// Terms of an op's count of operations on one replica. Their sum may need more than 64 bits.
using FlopsFn = std::vector<FlopTerm> (*)(const Ir&, const Op&);

/// Kernels: `eval` or `collective`, and the additional ones of products and their consumers. FLOP count:
/// `elementwise` or `flops`; neither: 0 (ops/flops.h).
struct KernelAspect {
  EvalFn eval = nullptr;  ///< Kernel maker of a local op, for a run of blocks.
  /// Kernel maker of a collective or host io op, which sees all blocks.
  CollectiveFn collective = nullptr;
  ProductFn product = nullptr;  ///< Kernel maker of a matrix product that a consumer may fuse.
  RowsFn rows = nullptr;        ///< Kernel maker for some rows of such a product.
  FusionFn fusion = nullptr;    ///< Fusion parameters of a consumer that can fuse a product.
  SlicesFn slices = nullptr;    ///< Relation to slices along the first axis; null: kNone.
  StridedFn strided = nullptr;  ///< View that `eval` copies, for ops that only move elements.
  /// True if the kernel of `eval` supports the views in EvalSpec::reads and EvalSpec::writes.
  bool (*supports_views)(const EvalSpec&) = nullptr;
  /// Element-wise kernel that the op is, or whose number of operations per element of output 0 it has.
  std::optional<kernels::ElementwiseOp> elementwise = {};
  FlopsFn flops = nullptr;
};

/// Gradients: one of `rule`, `inputs` and `each`, or none of them.
struct GradAspect {
  GradFn rule = nullptr;                 ///< Rule that sets several gradients at once.
  std::vector<InputGradFn> inputs = {};  ///< Rule for each input; called for inputs that need a gradient.
  EachGradFn each = nullptr;             ///< One rule for all inputs, called with the input's index.
  /// Gradient of input 0 if gradients of outputs are whole: equal on replicas that share an output
  /// (autodiff with replicas="sum"). nullptr: the usual rule, for an op that reads its own replica alone.
  InputGradFn of_whole = nullptr;
  NoGrad missing = NoGrad::kStops;  ///< Behaviour if there is no gradient.
  /// True if there is no gradient for these attributes, so that asking for one throws; nullptr: never.
  bool (*refuses)(const Op&) = nullptr;

  bool exists() const { return rule != nullptr || !inputs.empty() || each != nullptr; }
  /// Calls the rule.
  void apply(Grad& grad) const;
};
GradAspect per_input(std::vector<InputGradFn> inputs);

/// Replicas: which of them hold equal outputs, and with whom they exchange values.
struct ReplicaAspect {
  PartitionFn partition = meet_of_inputs;
  std::string_view rule_text = {};  ///< Description of the op's own partition rule, for tables.
  /// Witnesses of a difference; nullptr: an input that influences the value differs between r and s too.
  WitnessFn witness = nullptr;
  PopartFn popart = and_of_inputs;  ///< Rule of mode "popart".
  Collective collective = Collective::kNone;
  Peers peers = Peers::kNone;  ///< Replicas with which a replica exchanges values.
  /// Maker of a chain kernel, for a reduction of groups that ranks can compute one after another.
  ChainFn chain = nullptr;
  bool zero_fill = false;  ///< True if replicas that nothing is sent to receive zeros.
  /// True for a gradient op whose input must already be equal within the group (identity backward of a
  /// reduction or gather): nothing is summed.
  bool expects_whole_gradient = false;
  /// Name of the op that several of it may be merged into (transform/merge.h); empty: it is not merged.
  std::string_view merged = {};
};

/// Memory: inputs that are written, outputs that are views, contents that are known or undefined.
struct MemoryAspect {
  std::vector<Effect> effects = {};
  /// Makes output 0 a view of all inputs; null: it has memory of its own. The kernel of `eval` copies the
  /// view's elements out of View::bases; the kernel of `write_back` copies its input 0, the view, into the
  /// bases, which are its outputs. Specs have the bases as inputs.
  ViewFn view = nullptr;
  EvalFn write_back = nullptr;
  /// True if output 0 is input 0 with another shape, so that both may share a buffer.
  bool same_bytes = false;
  /// True if output 0 may have the memory of input 0; `eval` then writes only the elements that differ.
  bool in_place = false;
  ZerosFn zeros = nullptr;  ///< Effect on zeros; nullptr: only what `same_bytes` and `influences` imply.
  bool (*undefined)(const Op&) = nullptr;  ///< True if outputs hold whatever the memory held before.
};

/// Numbers: rounding, random draws, class labels.
struct NumericAspect {
  Rounding rounding = Rounding::kNone;
  bool random = false;  ///< True if the op draws random numbers.
  /// Inputs in which outputs are linear. Not set for collectives, and where `same_bytes` says it.
  Linear linear = Linear::kNone;
  /// Index of the input of labels; labels out of range are added to BlockRun::invalid_labels.
  std::optional<std::size_t> labels = {};
  /// True if an element of output 0 depends only on the same elements of inputs of its shape and on inputs of
  /// one element, and other outputs, of one element, on such inputs alone. Set for ops without `elementwise`.
  bool pointwise = false;
};

/// Role in the program: called graphs, remote buffers, the host, devices, the Python module.
struct ProgramAspect {
  /// Kind of control op, which runs the graphs in its attributes (ir/calls/called_graphs.h).
  Control control = Control::kNone;
  Remote remote = Remote::kNone;  ///< Use of a remote buffer.
  /// Name of the op that several exchanges with the host or remote memory may be merged into
  /// (transform/merge.h).
  std::string_view merged = {};
  /// True if the op acts on the host (store, print), so that it is never removed.
  bool observable = false;
  /// Placement of inputs; nullptr: where the op is, and all inputs must be in one place.
  PlaceFn input_place = nullptr;
  PlaceFn output_place = nullptr;  ///< Placement of outputs; nullptr: where the op is.
  bool internal = false;           ///< True if only transforms make the op; it has no Python function.
  /// Name of its C++ file and of the Python module of its function; set by the registry.
  std::string_view family = {};
};

inline constexpr NumericAspect kRoundsOnce{.rounding = Rounding::kOnce};
inline constexpr NumericAspect kPointwise{.rounding = Rounding::kOnce, .pointwise = true};
inline constexpr NumericAspect kLinear{.rounding = Rounding::kOnce, .linear = Linear::kSum};

struct OpDef {
  std::string_view name;
  std::vector<InputDef> inputs = {};
  std::vector<AttrDef> attrs = {};
  InferFn infer = nullptr;
  KernelAspect kernel = {};
  GradAspect grad = {};
  ReplicaAspect replicas = {};
  MemoryAspect memory = {};
  NumericAspect numerics = {};
  ProgramAspect program = {};

  /// Index of the attribute; InternalError if it is not declared.
  std::size_t attr_index(std::string_view attr) const;
  bool writes(std::size_t input) const;
  /// Definition of an input; the last one serves variadic inputs and remote entries.
  const InputDef& input(std::size_t index) const { return inputs[std::min(index, inputs.size() - 1)]; }
  bool influences(std::size_t index) const { return input(index).influences; }
  bool is_pointwise() const { return kernel.elementwise.has_value() || numerics.pointwise; }
  /// True if output 0 holds the elements of input 0, and no others, in another form or dtype.
  bool moves() const { return numerics.linear == Linear::kMove || memory.same_bytes; }
  /// True if each output is a sum of inputs, with signs.
  bool sums() const { return numerics.linear == Linear::kSum || moves(); }
  /// True if outputs are linear in some of the inputs while the others stay; of collectives, those that add.
  bool is_linear() const;
  /// True if the op defines its own partition rule, or needs none. Without one, an op that reads other
  /// replicas or stored values counts as equal nowhere, since the default rule does not cover these.
  bool has_rule() const;
};

// Attributes that analysis, transforms and runtime read.
inline constexpr Attr<ReplicaGrouping> kGroup{"group"};
inline constexpr Attr<GraphId> kGraph{"graph"};       ///< Graph that a call or a repeat runs.
inline constexpr Attr<std::int64_t> kCount{"count"};  ///< Iterations of a repeat.
inline constexpr Attr<RemoteId> kRemoteBuffer{"remote_buffer"};
inline constexpr Attr<std::int64_t> kEntry{"entry"};

inline constexpr Choice<CollectiveOp> kCollectiveOps[] = {
    {"add", CollectiveOp::kAdd}, {"mean", CollectiveOp::kMean},
    {"mul", CollectiveOp::kMul}, {"min", CollectiveOp::kMin},
    {"max", CollectiveOp::kMax}, {"and", CollectiveOp::kAnd},
    {"or", CollectiveOp::kOr},   {"square_add", CollectiveOp::kSquareAdd}};
/// Reduction of collectives that reduce.
inline constexpr ChoiceAttr<CollectiveOp> kReduction{"op", kCollectiveOps};

/// Groups in the op's "group" attribute; one group of all replicas if it is absent.
ReplicaGrouping group_of(const Ir& ir, const Op& op);
/// Entry that a remote load or store reaches, if the program's text determines it: an attribute or a
/// constant.
std::optional<std::int64_t> known_offset(const Ir& ir, const Op& op);
/// Effects that the op has on its inputs.
std::vector<Effect> effects_of(const Op& op);

/// Groups whose members must run the op together, because it exchanges values between them; nullopt for an
/// op that a replica can run alone.
std::optional<ReplicaGrouping> collective_groups(const Ir& ir, const Op& op);

/// Op definitions by name. Copyable, so that a test can change a field of a copy.
class Registry {
 public:
  void add(OpDef def);
  /// Definition of an op; NameError with close matches if unknown.
  const OpDef& at(std::string_view name) const;
  std::vector<std::string_view> names() const;
  /// Replaces the definition of that name.
  void replace(OpDef def);

 private:
  std::map<std::string, OpDef, std::less<>> defs_;
};

}  // namespace popsr
