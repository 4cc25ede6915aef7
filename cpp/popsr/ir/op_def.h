// OpDef: the definition of an op, plain data in aspects. Analysis, transforms and runtime know ops through
// this struct alone.
//
// Adding an op = one OpDef in cpp/popsr/ops/<family>/, its Python signature in
// python/popsr/ops/<family>.py and a row in tests_py/ops/rows. Defaults are the common case: a pure
// function of its inputs says nothing more.
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

#include "popsr/base/strided_view.h"
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
  bool influences = true;  ///< False: only shape, or contents that are overwritten unread.
  bool variadic = false;   ///< The last input only: any number of tensors.
  bool seed = false;       ///< Seeds the random numbers that the op draws.
};

/// Output `output` is the allocation of input `input` after this op wrote it. Where an optional input is not
/// given, there is neither the effect nor the output, which is the last one.
struct Effect {
  std::size_t input = 0;
  std::size_t output = 0;
  bool in_popart = true;  ///< False: the reference's op writes the input too, but has no such output.
};

struct OutputDef {
  TensorType type;
  Shape meta_shape = {};
};

/// Given to infer(): types of the inputs and the bound attributes.
struct InferContext {
  const Ir& ir;
  const Op& op;  ///< Inputs and attributes are set, outputs are not.

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

/// Given to a partition rule: facts of the inputs as this op reads them.
struct RuleContext {
  PartitionTable& table;
  const Ir& ir;
  const Op& op;
  /// top() where an optional input is absent; remote entries follow, or what a stream gives.
  std::span<const PartitionId> inputs;
  PartitionId exec;  ///< Replicas that certainly run this point together.
};
/// Fact of one output: the kernel of the key "replica -> what the value is made of"
/// (docs/replica_partitions.md).
using PartitionFn = PartitionId (*)(const RuleContext&, std::size_t output);

/// The default: meet of the inputs that influence the value.
PartitionId meet_of_inputs(const RuleContext& context, std::size_t output);
/// For ops whose output is the same on all replicas, whatever the inputs are.
PartitionId equal_everywhere(const RuleContext& context, std::size_t output);

/// A reason why two replicas differ in an output: `input` differs between replicas r and s.
struct Witness {
  std::size_t input = 0;
  Replica r = 0, s = 0;
};
/// For rules that mix replicas: inputs and pairs of which one must differ if replicas r and s differ in
/// `output`, unless the op itself tells r and s apart. Facts decide which of them does.
using WitnessFn = std::vector<Witness> (*)(const Ir&, const Op&, std::size_t output, Replica r, Replica s);

/// Given to a rule of mode "popart" (analysis/popart/popart_analysis.h).
struct PopartContext {
  const Ir& ir;
  const Op& op;
  std::vector<bool>
      inputs;  ///< Of Op::inputs: equal on all replicas when the op reads it; true where absent.
};
/// True if the reference takes the output for equal on all replicas: its rules, right or wrong.
using PopartFn = bool (*)(const PopartContext&, std::size_t output);

/// The reference's default: equal when all inputs are, also those that cannot influence the value.
bool and_of_inputs(const PopartContext& context, std::size_t output);

/// The effect of an op on zeros (analysis/state_reads.h). A zero has no bit set.
struct ZeroFacts {
  bool clears = false;   ///< Output 0 holds zeros.
  bool ignores = false;  ///< Input 0 does not matter.
};
/// `zeros`: the inputs that certainly hold zeros on all replicas.
using ZerosFn = ZeroFacts (*)(const Op&, const std::vector<bool>& zeros);

/// The parts of the inputs that output 0, which has no memory of its own, consists of.
using ViewFn = std::vector<ViewPart> (*)(const Ir&, const Op&);

/// Sets the gradients of the inputs (Grad::set).
using GradFn = void (*)(Grad&);
/// The gradient of one input; no value where there is none.
using InputGradFn = GradValue (*)(Grad&);
using EachGradFn = GradValue (*)(Grad&, std::size_t input);

/// Device placement of an operand, by its number among the inputs or the outputs.
using PlaceFn = Place (*)(const Op&, std::size_t index);

enum class Rounding : std::uint8_t {
  kNone,  ///< Exact: data movement, selection, integers.
  kOnce,  ///< Narrow outputs are rounded once.
};
/// With whom a replica exchanges values in an op: they must run it together.
enum class Peers : std::uint8_t {
  kNone,   ///< Nobody: a replica can run it alone.
  kGroup,  ///< The group in attribute kGroup; all replicas where it is absent.
  kAll
};
enum class NoGrad : std::uint8_t { kStops, kThrows };
/// The value that a group, attribute kGroup, makes of its members' values of input 0.
enum class Collective : std::uint8_t {
  kNone,
  kReduce,     ///< One value of all of theirs, by attribute kReduction.
  kGather,     ///< All values, one after the other.
  kBroadcast,  ///< The value of one of them.
};
/// Reduction of a collective over the values of its members.
enum class CollectiveOp : std::uint8_t { kAdd, kMean, kMul, kMin, kMax, kAnd, kOr, kSquareAdd };
enum class Control : std::uint8_t { kNone, kCall, kRepeat, kConditional };
/// Entries of the remote buffer in attribute "remote_buffer" that follow an op's own operands: as inputs when
/// it loads; as inputs and outputs when it stores (effects/remote_access.h).
enum class Remote : std::uint8_t { kNone, kLoads, kStores };

using EvalFn = std::function<void(const BlockRun&)> (*)(const EvalSpec&);
using CollectiveFn = std::function<void(const CollectiveRun&)> (*)(const CollectiveSpec&);
/// Null when the op's types have no such kernel.
using ProductFn = std::function<void(const ProductRun&)> (*)(const EvalSpec&);
/// Null when the product is not a matrix.
using RowsFn = std::function<void(const RowsRun&)> (*)(const EvalSpec&);
/// nullopt when this op does not fuse a product.
using FusionFn = std::optional<ProductFusion> (*)(const EvalSpec&);

/// nullopt when the op is not a chain of additions.
using ChainFn = std::optional<ReductionChain> (*)(const EvalSpec&);

/// Slices along the first axis: one of output 0 is each input, in their order; or output 0 is the sum of
/// those of input 0, in ascending order.
enum class Slices : std::uint8_t { kNone, kJoined, kAdded };
using SlicesFn = Slices (*)(const EvalSpec&);

/// Output 0 as a view of input 0.
using StridedFn = StridedView (*)(const EvalSpec&);

/// Floating point operations: `each` for each of `elements`.
struct FlopTerm {
  std::int64_t elements = 0;
  std::int64_t each = 1;
};
/// The terms of an op's count on one replica. Their sum may need more than 64 bits.
using FlopsFn = std::vector<FlopTerm> (*)(const Ir&, const Op&);

/// Kernels: `eval` or `collective`, and what products and their consumers add. FLOP count: `elementwise` or
/// `flops`; neither: 0 (ops/flops.h).
struct KernelAspect {
  EvalFn eval = nullptr;              ///< Local op: kernel for a run of blocks.
  CollectiveFn collective = nullptr;  ///< Collective or host io: kernel that sees all blocks.
  ProductFn product = nullptr;        ///< Matrix product that a consumer may fuse.
  RowsFn rows = nullptr;              ///< The same, some rows at a time.
  FusionFn fusion = nullptr;          ///< Consumer that can fuse a product.
  SlicesFn slices = nullptr;          ///< Null: kNone.
  StridedFn strided = nullptr;        ///< `eval` moves elements alone, those of a view of the input.
  /// True if `eval` computes what EvalSpec::reads and EvalSpec::writes ask for.
  bool (*supports_views)(const EvalSpec&) = nullptr;
  /// Element-wise kernel that the op is, or counts as: its operations for each element of output 0.
  std::optional<kernels::ElementwiseOp> elementwise = {};
  FlopsFn flops = nullptr;
};

/// Gradients: one of `rule`, `inputs` and `each`, or none of them.
struct GradAspect {
  GradFn rule = nullptr;                 ///< Sets several gradients at once.
  std::vector<InputGradFn> inputs = {};  ///< A rule for each input; called for those that need a gradient.
  EachGradFn each = nullptr;             ///< The same as one function.
  /// The gradient of input 0 where gradients of outputs are whole: equal on replicas that share an output
  /// (autodiff with replicas="sum"). nullptr: the same as else, of an op that reads its own replica alone.
  InputGradFn of_whole = nullptr;
  NoGrad missing = NoGrad::kStops;  ///< Consequence of a missing gradient.
  /// True if there is no gradient for these attributes; nullptr: never. A gradient that is asked for throws.
  bool (*refuses)(const Op&) = nullptr;

  bool exists() const { return rule != nullptr || !inputs.empty() || each != nullptr; }
  /// Calls the rule.
  void apply(Grad& grad) const;
};
GradAspect per_input(std::vector<InputGradFn> inputs);

/// Replicas: which of them hold equal outputs, and with whom they exchange values.
struct ReplicaAspect {
  PartitionFn partition = meet_of_inputs;
  std::string_view rule_text = {};  ///< In words, for tables: the op's own partition rule.
  WitnessFn witness = nullptr;  ///< nullptr: an input that influences the value differs between r and s too.
  PopartFn popart = and_of_inputs;  ///< For mode "popart" alone.
  Collective collective = Collective::kNone;
  Peers peers = Peers::kNone;  ///< With whom a replica exchanges values.
  ChainFn chain = nullptr;     ///< A reduction of groups that ranks can compute one after another.
  bool zero_fill = false;      ///< Replicas that nothing is sent to receive zeros.
  /// Op of gradients: its input is the gradient of what a forward reduction or gather gave to a group, and it
  /// is right if that is equal in the group: nothing is summed.
  bool expects_whole_gradient = false;
  /// The op that several of it may become (transform/merge.h); empty: it stays alone.
  std::string_view merged = {};
};

/// Memory: inputs that are written, outputs that are views, contents that are known or undefined.
struct MemoryAspect {
  std::vector<Effect> effects = {};
  /// Output 0 is a view of all inputs. The kernel of `eval` copies it out of View::bases, the kernel of
  /// `write_back` copies it, its input 0, into them, its outputs; specs have the bases as inputs.
  ViewFn view = nullptr;
  EvalFn write_back = nullptr;
  bool same_bytes = false;  ///< Output 0 is input 0 with another shape: the buffer may be shared.
  bool in_place = false;    ///< Output 0 may be where input 0 is: `eval` then writes what differs.
  ZerosFn zeros = nullptr;  ///< nullptr: nothing is known but what `same_bytes` and `influences` say.
  bool (*undefined)(const Op&) = nullptr;  ///< True if outputs are whatever the memory held before.
};

/// Numbers: rounding, random draws, class labels.
struct NumericAspect {
  Rounding rounding = Rounding::kNone;
  bool random = false;  ///< Draws random numbers.
  bool linear = false;  ///< Each output is a sum of inputs, with signs. (Not said of moves of data.)
  std::optional<std::size_t> labels =
      {};  ///< Input of labels; labels of no class are told to `stray` of the run.
  /// An element of output 0 depends on the same elements of inputs of its shape and on inputs of one
  /// element, and other outputs, of one element, on such inputs alone. Said of ops that `elementwise` does
  /// not say it of.
  bool pointwise = false;
};

/// The program: called graphs, remote buffers, the host, devices, the Python module.
struct ProgramAspect {
  Control control = Control::kNone;  ///< Runs the graphs in its attributes (ir/calls/called_graphs.h).
  Remote remote = Remote::kNone;     ///< Reaches a remote buffer.
  /// The op that several exchanges with the host or remote memory may become (transform/merge.h).
  std::string_view merged = {};
  bool observable = false;         ///< Acts on the host (store, print): never removed.
  PlaceFn input_place = nullptr;   ///< nullptr: where the op is, and all inputs must be in one place.
  PlaceFn output_place = nullptr;  ///< nullptr: where the op is.
  bool internal = false;           ///< Made by transforms only: has no Python function.
  /// Name of its C++ file and of the Python module of its function; set by the registry.
  std::string_view family = {};
};

inline constexpr NumericAspect kRoundsOnce{.rounding = Rounding::kOnce};
inline constexpr NumericAspect kPointwise{.rounding = Rounding::kOnce, .pointwise = true};
inline constexpr NumericAspect kLinear{.rounding = Rounding::kOnce, .linear = true};

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

  /// Index of the attribute; InternalError when it is not declared.
  std::size_t attr_index(std::string_view attr) const;
  bool writes(std::size_t input) const;
  /// The definition of an operand; the last one serves variadic inputs and remote entries.
  const InputDef& input(std::size_t index) const { return inputs[std::min(index, inputs.size() - 1)]; }
  bool influences(std::size_t index) const { return input(index).influences; }
  bool is_pointwise() const { return kernel.elementwise.has_value() || numerics.pointwise; }
  /// True if the op defines its own partition rule. The default says nothing about what other replicas or
  /// stored values do to an output; such an op is equal nowhere.
  bool has_rule() const;
};

// Attributes that analysis, transforms and runtime read.
inline constexpr Attr<ReplicaGrouping> kGroup{"group"};
inline constexpr Attr<GraphId> kGraph{"graph"};       ///< Run by a call or a repeat.
inline constexpr Attr<std::int64_t> kCount{"count"};  ///< Iterations of a repeat.
inline constexpr Attr<RemoteId> kRemoteBuffer{"remote_buffer"};
inline constexpr Attr<std::int64_t> kEntry{"entry"};

inline constexpr Choice<CollectiveOp> kCollectiveOps[] = {
    {"add", CollectiveOp::kAdd}, {"mean", CollectiveOp::kMean},
    {"mul", CollectiveOp::kMul}, {"min", CollectiveOp::kMin},
    {"max", CollectiveOp::kMax}, {"and", CollectiveOp::kAnd},
    {"or", CollectiveOp::kOr},   {"square_add", CollectiveOp::kSquareAdd}};
inline constexpr ChoiceAttr<CollectiveOp> kReduction{"op", kCollectiveOps};  ///< Of collectives that reduce.

/// The op's "group" attribute; one group of all replicas where it is absent.
ReplicaGrouping group_of(const Ir& ir, const Op& op);
/// The entry that a remote load or store reaches, when the program's text tells: an attribute or a constant.
std::optional<std::int64_t> known_offset(const Ir& ir, const Op& op);
/// The effects on inputs that the op has.
std::vector<Effect> effects_of(const Op& op);

/// The groups whose members must run the op together, because it exchanges values between them; nullopt for
/// an op that a replica can run without others.
std::optional<ReplicaGrouping> collective_groups(const Ir& ir, const Op& op);

/// The ops by name. Copyable: a test mutates one field of a copy.
class Registry {
 public:
  void add(OpDef def);
  /// NameError with close matches when unknown.
  const OpDef& at(std::string_view name) const;
  std::vector<std::string_view> names() const;
  /// Replaces the definition of that name.
  void replace(OpDef def);

 private:
  std::map<std::string, OpDef, std::less<>> defs_;
};

}  // namespace popsr
