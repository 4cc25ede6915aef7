// Times the analysis on generated programs, which take turns; one line of JSON a program. Read by
// bench_analysis.py and bench_explain.py.
//   popsr_bench_analysis <rounds> <program>:<replicas>:<size>[:popart]...
//   popsr_bench_analysis lints <rounds> <program>:<replicas>:<size>...
//   popsr_bench_analysis growth <rounds> <program>:<replicas>:<size>...
//   popsr_bench_analysis explain <questions> <program>:<replicas>:<size>...
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "explain.h"
#include "popsr/analysis/partition_analysis.h"
#include "popsr/analysis/popart/popart_analysis.h"
#include "popsr/base/error.h"
#include "programs.h"
#include "rework.h"

namespace popsr::bench {
namespace {

struct Row {
  std::string name;
  std::unique_ptr<Ir> ir;
  std::vector<double> seconds = {};
  double bytes_a_tensor = 0;
  bool popart = false;  ///< The analysis of mode "popart".
};

std::unique_ptr<Ir> build(const std::string& program, std::int64_t replicas, std::int64_t size) {
  if (program == "gpt") return gpt_step(replicas, size);
  if (program == "inlined") return layers_inlined(replicas, 96, size);
  if (program == "called") return layers_called(replicas, 96, size);
  if (program == "late") return late_updates(replicas, size);
  if (program == "collectives") return many_collectives(replicas, size);
  if (program == "rotation") return rotation(replicas, size);
  if (program == "loops") return loop_nest(replicas, size);
  raise<AttributeValueError>("popsr_bench_analysis: unknown program, got '{}'", program);
}

Row parse(const std::string& text) {
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  const std::int64_t replicas = std::stoll(text.substr(first + 1, second - first - 1));
  return {.name = text,
          .ir = build(text.substr(0, first), replicas, std::stoll(text.substr(second + 1))),
          .popart = text.ends_with(":popart")};
}

std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

template <class Analysis>
void measure(Row& row) {
  const std::size_t before = bytes_in_use();
  const auto start = std::chrono::steady_clock::now();
  const Analysis facts(*row.ir);
  row.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  row.bytes_a_tensor =
      static_cast<double>(bytes_in_use() - before) / static_cast<double>(row.ir->num_tensors());
}

void print(const Row& row) {
  std::printf(R"({"program": "%s", "ops": %zu, "partitions": %zu, "bytes_a_tensor": %.1f, "seconds": [)",
              row.name.c_str(), row.ir->num_ops(), row.ir->partitions().size(), row.bytes_a_tensor);
  for (std::size_t i = 0; i < row.seconds.size(); ++i) {
    std::printf("%s%.7f", i == 0 ? "" : ", ", row.seconds[i]);
  }
  std::printf("]}\n");
}

void run(int rounds, const std::vector<std::string>& programs) {
  std::vector<Row> rows;
  for (const std::string& program : programs) rows.push_back(parse(program));
  for (int round = 0; round < rounds; ++round) {
    for (Row& row : rows) row.popart ? measure<PopartAnalysis>(row) : measure<PartitionAnalysis>(row);
  }
  for (const Row& row : rows) print(row);
}

void explain(int questions, const std::vector<std::string>& programs) {
  for (const std::string& program : programs) explain_random_values(program, *parse(program).ir, questions);
}

void lints(int rounds, const std::vector<std::string>& programs) {
  for (const std::string& program : programs) time_lints(program, *parse(program).ir, rounds);
}

void growth(int rounds, const std::vector<std::string>& programs) {
  for (const std::string& program : programs) time_growth(program, *parse(program).ir, rounds);
}

}  // namespace
}  // namespace popsr::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: popsr_bench_analysis <rounds> <program>:<replicas>:<size>[:popart]...\n");
    return 2;
  }
  if (argv[1] == std::string("explain")) {
    popsr::bench::explain(std::stoi(argv[2]), {argv + 3, argv + argc});
  } else if (argv[1] == std::string("growth")) {
    popsr::bench::growth(std::stoi(argv[2]), {argv + 3, argv + argc});
  } else if (argv[1] == std::string("lints")) {
    popsr::bench::lints(std::stoi(argv[2]), {argv + 3, argv + argc});
  } else {
    popsr::bench::run(std::stoi(argv[1]), {argv + 2, argv + argc});
  }
}
