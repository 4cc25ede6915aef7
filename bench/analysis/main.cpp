// Times the analysis on generated programs: one line of JSON a measurement. Read by bench_analysis.py.
//   popsr_bench_analysis gpt <replicas> <ops> <rounds>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "popsr/analysis/partition_analysis.h"
#include "programs.h"

namespace popsr::bench {
namespace {

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void report(const std::string& name, const Ir& ir, int rounds) {
  std::printf("{\"program\": \"%s\", \"ops\": %zu, \"replicas\": %lld, \"seconds\": [", name.c_str(),
              ir.num_ops(), static_cast<long long>(ir.replication()));
  for (int i = 0; i < rounds; ++i) {
    const double t = seconds([&ir] { const PartitionAnalysis facts(ir); });
    std::printf("%s%.6f", i == 0 ? "" : ", ", t);
  }
  std::printf("], \"partitions\": %zu}\n", ir.partitions().size());
}

}  // namespace
}  // namespace popsr::bench

int main(int argc, char** argv) {
  using namespace popsr::bench;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const long long replicas = std::atoll(args.at(1).c_str()), size = std::atoll(args.at(2).c_str());
  const int rounds = std::atoi(args.at(3).c_str());
  const std::map<std::string, std::function<std::unique_ptr<popsr::Ir>()>> programs{
      {"gpt", [&] { return gpt_step(replicas, size); }},
      {"inlined", [&] { return layers_inlined(replicas, 96, size / 96); }},
      {"called", [&] { return layers_called(replicas, 96, size / 96); }},
      {"rotation", [&] { return rotation(replicas, size); }},
      {"loops", [&] { return loop_nest(replicas, size); }},
  };
  report(args.at(0), *programs.at(args.at(0))(), rounds);
}
