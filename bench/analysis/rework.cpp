#include "rework.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <vector>

#include "popsr/analysis/lint/lints.h"
#include "popsr/base/error.h"
#include "popsr/effects/verify.h"
#include "popsr/ir/flat/flat_program.h"

namespace popsr::bench {
namespace {

/// Processor time of this process in seconds: deep programs are analysed on threads of their own.
double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Seconds of processor time that the pass took.
template <class Pass>
double seconds_of(const Pass& pass) {
  const double start = processor_time();
  pass();
  return processor_time() - start;
}

using LintPass = void (*)(Explainer&, std::vector<Lint>&);
void order(Explainer& explainer, std::vector<Lint>& lints) { lint_order(explainer, lints); }
constexpr std::pair<std::string_view, LintPass> kLints[] = {
    {"control", lint_control},
    {"stores", lint_stores},
    {"variables", lint_variables},
    {"sites", lint_call_sites},
    {"own", lint_ops},
    {"updates", lint_updates},
    {"reads", lint_reads},
    {"gradients", lint_gradients},
    {"order", order},
};

}  // namespace

void time_lints(const std::string& name, Ir& ir, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::printf(R"({"program": "%s", "ops": %zu, "verify": %.7f, "check": %.7f)", name.c_str(), ir.num_ops(),
                seconds_of([&] { verify(ir); }), seconds_of([&] {
                  std::vector<UnorderedPair> pairs;
                  WriteOrder(ir, kMainGraph, flat(ir).schedule(kMainGraph), pairs);
                }));
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

void time_growth(const std::string& name, Ir& ir, int rounds) {
  std::unique_ptr<PartitionAnalysis> facts;
  const auto analyse = [&] {
    verify(ir);
    facts = std::make_unique<PartitionAnalysis>(ir);
  };
  double whole = seconds_of(analyse);
  for (int round = 1; round < rounds; ++round) whole = std::min(whole, seconds_of(analyse));
  std::printf(R"({"program": "%s", "ops": %zu, "whole": %.7f, "seconds": [)", name.c_str(), ir.num_ops(),
              whole);
  const TensorId last = ir.op(OpId(ir.num_ops() - 1)).outputs.at(0);
  for (int round = 0; round < rounds; ++round) {
    ir.emit(kMainGraph, "add", {last, last}, {.sequence = SequenceMode::kUnordered});
    std::unique_ptr<PartitionAnalysis> grown;
    const double seconds = seconds_of([&] {
      verify(ir);
      grown = PartitionAnalysis::grown(*facts, {});
    });
    POPSR_CHECK(grown != nullptr);
    std::printf("%s%.7f", round == 0 ? "" : ", ", seconds);
    facts = std::move(grown);
  }
  std::printf("]}\n");
}

}  // namespace popsr::bench
