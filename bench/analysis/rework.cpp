#include "rework.h"

#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "popsr/analysis/lint/lints.h"
#include "popsr/effects/verify.h"

namespace popsr::bench {
namespace {

/// Seconds that the pass took.
template <class Pass>
double seconds_of(const Pass& pass) {
  const auto start = std::chrono::steady_clock::now();
  pass();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using LintPass = void (*)(Explainer&, std::vector<Lint>&);
constexpr std::pair<std::string_view, LintPass> kLints[] = {
    {"control", lint_control}, {"stores", lint_stores},   {"variables", lint_variables},
    {"sites", lint_call_sites}, {"ops", lint_ops},        {"updates", lint_updates},
    {"reads", lint_reads},     {"gradients", lint_gradients}, {"order", lint_order},
};

}  // namespace

void time_lints(const std::string& name, Ir& ir, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::printf(R"({"program": "%s", "ops": %zu, "verify": %.7f, "check": %.7f)", name.c_str(), ir.num_ops(),
                seconds_of([&] { verify(ir); }), seconds_of([&] { unordered_writes(ir, kMainGraph); }));
    std::unique_ptr<PartitionAnalysis> facts;
    std::printf(R"(, "facts": %.7f)", seconds_of([&] { facts = std::make_unique<PartitionAnalysis>(ir); }));
    Explainer explainer(*facts);
    std::vector<Lint> lints;
    for (const auto& [lint, pass] : kLints) {
      std::printf(R"(, "%s": %.7f)", lint.data(), seconds_of([&, pass = pass] { pass(explainer, lints); }));
    }
    std::printf(R"(, "lints": %zu})"
                "\n",
                lints.size());
  }
}

}  // namespace popsr::bench
