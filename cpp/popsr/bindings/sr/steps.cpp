// popsr._core.sr: steps of optimisers over all tensors of a group. Tensors come as addresses, since a view of
// each as an array takes longer than the step of a small one. The Python package has checked that they are
// contiguous, of one shape and alive.
#include <array>

#include "popsr/bindings/gil.h"
#include "popsr/bindings/sr/arrays.h"
#include "popsr/kernels/float_env.h"
#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"
#include "popsr/sr/updates.h"

namespace popsr::bindings {
namespace {

using kernels::Domain;
using kernels::SrWeight;

/// Number of the parameter, of its step, is it the first, elements; address and format of w, g, m and v;
/// number of the first element, address and number of runs.
using Row = std::array<std::uint64_t, 15>;

std::byte* address(std::uint64_t word) { return reinterpret_cast<std::byte*>(word); }

std::vector<SrWeight> weights_of(std::uint64_t seed, const std::vector<Row>& rows) {
  const kernels::KernelTable& table = kernels::kernel_table();
  const kernels::NoiseKey root = seed_key(table, seed);
  std::vector<SrWeight> weights;
  weights.reserve(rows.size());
  for (const Row& row : rows) {
    SrWeight& weight = weights.emplace_back();
    weight.step = row[1];
    weight.is_first = row[2] != 0;
    weight.n = static_cast<std::int64_t>(row[3]);
    weight.w = address(row[4]);
    weight.g = address(row[6]);
    weight.m = address(row[8]);
    weight.v = address(row[10]);
    for (std::size_t i = 0; i < 4; ++i) {
      weight.formats[i] = checked_format(static_cast<int>(row[5 + 2 * i]));
    }
    weight.first = row[12];
    weight.runs = {reinterpret_cast<const kernels::SrRun*>(row[13]), static_cast<std::size_t>(row[14])};
    POPSR_CHECK(weight.runs.empty() || weight.runs.back().end == weight.n);
    weight.keys[0] =
        derive_key(table, derive_key(table, root, Domain::kInteger, row[0]), Domain::kAt, row[1]);
    if (weight.v == nullptr) continue;
    for (std::uint64_t i = 1; i < 3; ++i) {
      weight.keys[i] = derive_key(table, weight.keys[0], Domain::kMoment, i);
    }
  }
  return weights;
}

/// False, and nothing is written, where tensors share memory.
template <class Options>
bool step(const Options& options, std::uint64_t seed, const std::vector<Row>& rows, int threads) {
  const std::vector<SrWeight> weights = weights_of(seed, rows);
  if (!are_disjoint(weights)) return false;
  const kernels::FloatEnvironment environment;
  const WithoutGil released;
  sr_step(options, weights, threads);
  return true;
}

bool sgd_step(std::uint64_t seed, const std::vector<Row>& rows, const std::array<double, 4>& scalars,
              bool nesterov, bool maximize, int threads) {
  const auto [lr, momentum, dampening, weight_decay] = scalars;
  return step(kernels::SrSgd{lr, momentum, dampening, weight_decay, nesterov, maximize}, seed, rows, threads);
}

bool lion_step(std::uint64_t seed, const std::vector<Row>& rows, const std::array<double, 4>& scalars,
               bool maximize, int threads) {
  const auto [lr, beta1, beta2, weight_decay] = scalars;
  return step(kernels::SrLion{lr, beta1, beta2, weight_decay, maximize}, seed, rows, threads);
}

bool adamw_step(std::uint64_t seed, const std::vector<Row>& rows, const std::array<double, 5>& scalars,
                bool maximize, int threads) {
  const auto [lr, beta1, beta2, eps, weight_decay] = scalars;
  return step(kernels::SrAdamwOptions{lr, beta1, beta2, eps, weight_decay, maximize}, seed, rows, threads);
}

}  // namespace

void bind_sr_steps(py::module_& m) {
  m.def("sgd_step", &sgd_step, py::arg("seed"), py::arg("rows"), py::arg("scalars"), py::arg("nesterov"),
        py::arg("maximize"), py::arg("threads"));
  m.def("lion_step", &lion_step, py::arg("seed"), py::arg("rows"), py::arg("scalars"), py::arg("maximize"),
        py::arg("threads"));
  m.def("adamw_step", &adamw_step, py::arg("seed"), py::arg("rows"), py::arg("scalars"), py::arg("maximize"),
        py::arg("threads"));
}

}  // namespace popsr::bindings
