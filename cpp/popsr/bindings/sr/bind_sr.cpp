// popsr._core.sr: stochastic rounding of NumPy arrays. The Python package has checked what users may get
// wrong; here are the checks that memory needs.
#include <optional>

#include "popsr/base/error.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/sr/arrays.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/sr/sum.h"
#include "popsr/sr/updates.h"

namespace popsr::bindings {
namespace {

using kernels::SrArray;
using kernels::SrMode;
using kernels::SrOp;
using kernels::SrRounding;
using kernels::SrShape;

struct OpName {
  const char* name;
  std::size_t least_operands;
  std::size_t most_operands;
  std::size_t scalars;
};
constexpr OpName kOps[kernels::kNumSrOps] = {{"cast", 1, 1, 0}, {"add", 2, 2, 0},     {"sub", 2, 2, 0},
                                             {"mul", 2, 2, 0},  {"axpy", 2, 2, 1},    {"fma", 3, 3, 0},
                                             {"lerp", 2, 3, 1}, {"addcmul", 3, 3, 1}, {"addcdiv", 3, 3, 1}};

SrOp op_of(const std::string& name) {
  for (int op = 0; op < kernels::kNumSrOps; ++op) {
    if (name == kOps[op].name) return static_cast<SrOp>(op);
  }
  raise<InternalError>("sr: no such operation, got '{}', please report it", name);
}

/// Mode and bits of "sr", "sr_bits=7", ...
void set_mode(SrRounding& rounding, const std::string& mode) {
  constexpr std::pair<const char*, SrMode> kModes[] = {
      {"sr", SrMode::kProportional}, {"sr_equal", SrMode::kEqual}, {"rn", SrMode::kNearest},
      {"ru", SrMode::kUp},           {"rd", SrMode::kDown},        {"rz", SrMode::kZero}};
  for (const auto& [name, value] : kModes) {
    if (mode != name) continue;
    rounding.mode = value;
    return;
  }
  for (int bits = 1; bits <= 32; ++bits) {
    if (mode != "sr_bits=" + std::to_string(bits)) continue;
    rounding.mode = SrMode::kBits;
    rounding.bits = bits;
    return;
  }
  raise<AttributeValueError>(
      "mode: unknown, got '{}', expected one of sr, sr_equal, rn, ru, rd, rz, sr_bits=1 to sr_bits=32", mode);
}

SrRounding rounding_of(int format, const SrKey& key, const std::string& mode, bool saturate,
                       std::uint64_t offset) {
  SrRounding rounding;
  rounding.format = checked_format(format);
  set_mode(rounding, mode);
  rounding.saturate = saturate;
  rounding.key = key.words();
  rounding.first = offset;
  return rounding;
}

/// Numbers of n elements: of the first, and runs that follow it.
std::pair<std::uint64_t, kernels::SrRuns> numbers_of(const Offset& offset, std::int64_t n) {
  if (const auto* first = std::get_if<std::uint64_t>(&offset)) return {*first, {}};
  const auto& table = std::get<1>(offset);
  POPSR_CHECK(table.ndim() == 2 && table.shape(1) == 2);
  const kernels::SrRuns runs = {reinterpret_cast<const kernels::SrRun*>(table.data()),
                                static_cast<std::size_t>(table.shape(0))};
  POPSR_CHECK(runs.empty() ? n == 0 : runs.back().end == n);
  return {0, runs};
}

void apply(const std::string& op, const py::array& out, int out_format,
           const std::vector<py::array>& operands, const std::vector<int>& formats,
           const std::vector<double>& scalars, const SrKey& key, const std::string& mode, bool saturate,
           const Offset& offset, int threads) {
  kernels::SrCall call;
  call.op = op_of(op);
  const OpName& name = kOps[static_cast<int>(call.op)];
  POPSR_CHECK(operands.size() >= name.least_operands && operands.size() <= name.most_operands);
  POPSR_CHECK(formats.size() == operands.size());
  POPSR_CHECK(scalars.size() >= name.scalars || (call.op == SrOp::kLerp && operands.size() == 3));
  const auto [first, runs] = numbers_of(offset, out.size());
  call.rounding = rounding_of(out_format, key, mode, saturate, first);
  if (!scalars.empty()) call.scalar = scalars[0];
  const SrShape shape = shape_of(out);
  std::vector<SrArray> arrays = {sr_array(out, out_format, true)};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    POPSR_CHECK(shape_of(operands[i]) == shape);
    arrays.push_back(sr_array(operands[i], formats[i], false));
  }
  const WithoutGil released;
  sr_run(call, shape, arrays, threads, runs);
}

void sum(const py::array& out, int out_format, const py::array& x, int x_format,
         const std::vector<std::size_t>& axes, const SrKey& key, const std::string& mode, bool saturate,
         std::uint64_t offset, int threads) {
  const SrRounding rounding = rounding_of(out_format, key, mode, saturate, offset);
  const SrShape shape = shape_of(x);
  SrShape kept;
  std::size_t next = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (next < axes.size() && axes[next] == axis) {
      ++next;
    } else {
      kept.push_back(shape[axis]);
    }
  }
  POPSR_CHECK(next == axes.size() && kept == shape_of(out));
  const SrArray to = sr_array(out, out_format, true);
  const SrArray from = sr_array(x, x_format, false);
  const WithoutGil released;
  sr_run_sum(rounding, shape, to, from, axes, threads);
}

void adamw(const py::array& w, int w_format, const py::array& g, int g_format, const py::array& m,
           int m_format, const py::array& v, int v_format, const SrKey& key, std::uint64_t step,
           const std::array<double, 5>& scalars, const Offset& offset, int threads) {
  const SrShape shape = shape_of(w);
  POPSR_CHECK(shape_of(g) == shape && shape_of(m) == shape && shape_of(v) == shape);
  const std::vector<SrArray> arrays = {sr_array(w, w_format, true), sr_array(g, g_format, false),
                                       sr_array(m, m_format, true), sr_array(v, v_format, true)};
  const kernels::FloatEnvironment environment;
  const auto [lr, beta1, beta2, eps, weight_decay] = scalars;
  kernels::SrAdamw call = kernels::adamw_step({lr, beta1, beta2, eps, weight_decay}, step);
  call.keys[0] = key.words();
  call.keys[1] = key.moment(1).words();
  call.keys[2] = key.moment(2).words();
  const auto [first, runs] = numbers_of(offset, w.size());
  call.first = first;
  const WithoutGil released;
  sr_run_adamw(call, shape, arrays, threads, runs);
}

py::array_t<std::uint64_t> uniform_bits(const SrKey& key, std::int64_t n, std::uint64_t offset) {
  POPSR_CHECK(n >= 0);
  py::array_t<std::uint64_t> out(n);
  std::uint64_t* const data = out.mutable_data();
  {
    const WithoutGil released;
    kernels::kernel_table().uniform_bits(data, n, key.words(), offset);
  }
  return out;
}

void add_value(const py::array& x, const py::array& y, const py::array& out, int format, const SrKey& key,
               bool biased, int threads) {
  const SrShape shape = shape_of(out);
  POPSR_CHECK(shape_of(x) == shape && shape_of(y) == shape);
  const std::vector<SrArray> arrays = {sr_array(out, format, true), sr_array(x, format, false),
                                       sr_array(y, format, false)};
  kernels::SrValueAdd call;
  call.format = checked_format(format);
  call.key = value_key(key);
  call.biased = biased;
  const WithoutGil released;
  sr_run_value(call, shape, arrays, threads);
}

py::array_t<std::uint64_t> value_bits(const SrKey& key, const py::array& x, const py::array& y, int format) {
  const auto flat_x = py::array::ensure(x, py::array::c_style);
  const auto flat_y = py::array::ensure(y, py::array::c_style);
  POPSR_CHECK(flat_x && flat_y && shape_of(flat_x) == shape_of(flat_y));
  kernels::SrValueAdd call;
  call.x = sr_array(flat_x, format, false).data;
  call.y = sr_array(flat_y, format, false).data;
  call.format = checked_format(format);
  call.key = value_key(key);
  call.n = flat_x.size();
  py::array_t<std::uint64_t> out(shape_of(flat_x));
  std::uint64_t* const data = out.mutable_data();
  {
    const kernels::FloatEnvironment environment;
    const WithoutGil released;
    kernels::kernel_table().sr_value_bits(data, call);
  }
  return out;
}

}  // namespace

FloatFormat checked_format(int format) {
  POPSR_CHECK(format >= 0 && format < kNumFloatFormats);
  return static_cast<FloatFormat>(format);
}

SrArray sr_array(const py::array& array, int format, bool written) {
  SrArray out;
  out.format = checked_format(format);
  POPSR_CHECK(array.itemsize() == size_of(out.format));
  POPSR_CHECK(!written || array.writeable());
  out.data = static_cast<std::byte*>(const_cast<void*>(array.data()));
  out.strides.assign(array.strides(), array.strides() + array.ndim());
  return out;
}

SrShape shape_of(const py::array& array) { return {array.shape(), array.shape() + array.ndim()}; }

void bind_sr(py::module_& m) {
  py::module_ sr = m.def_submodule("sr", "Stochastic rounding (private)");
  py::list formats;
  for (const FloatFormatInfo& format : kFloatFormats) formats.append(format.name);
  sr.attr("FORMATS") = py::tuple(formats);
  py::list ops;
  for (const OpName& op : kOps) ops.append(op.name);
  sr.attr("OPS") = py::tuple(ops);
  bind_sr_key(sr);
  bind_sr_fast_calls(sr);
  bind_sr_steps(sr);
  sr.def("check_mode", [](const std::string& mode) {
    SrRounding rounding;
    set_mode(rounding, mode);
  });
  sr.def("apply", &apply, py::arg("op"), py::arg("out"), py::arg("out_format"), py::arg("operands"),
         py::arg("formats"), py::arg("scalars"), py::arg("key"), py::arg("mode"), py::arg("saturate"),
         py::arg("offset"), py::arg("threads"));
  sr.def("sum", &sum, py::arg("out"), py::arg("out_format"), py::arg("x"), py::arg("x_format"),
         py::arg("axes"), py::arg("key"), py::arg("mode"), py::arg("saturate"), py::arg("offset"),
         py::arg("threads"));
  sr.def("adamw", &adamw, py::arg("w"), py::arg("w_format"), py::arg("g"), py::arg("g_format"), py::arg("m"),
         py::arg("m_format"), py::arg("v"), py::arg("v_format"), py::arg("key"), py::arg("step"),
         py::arg("scalars"), py::arg("offset"), py::arg("threads"));
  sr.def("uniform_bits", &uniform_bits, py::arg("key"), py::arg("n"), py::arg("offset"));
  sr.def("add_value", &add_value, py::arg("x"), py::arg("y"), py::arg("out"), py::arg("format"),
         py::arg("key"), py::arg("biased"), py::arg("threads"));
  sr.def("value_bits", &value_bits, py::arg("key"), py::arg("x"), py::arg("y"), py::arg("format"));
}

}  // namespace popsr::bindings
