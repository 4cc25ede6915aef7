#include "explain.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "popsr/analysis/explain/explain.h"

namespace popsr::bench {
namespace {

struct Question {
  Value value;
  Replica r = 0, s = 0;
};

/// A value and two replicas that are not proved equal on it.
Question ask(Dataflow& flow, std::mt19937& random) {
  const Ir& ir = flow.ir();
  const auto below = [&random](std::size_t end) { return static_cast<std::uint32_t>(random() % end); };
  while (true) {
    const std::vector<TensorId>& tensors = ir.graph(kMainGraph).tensors;
    const Question question{flow.last(kMainFrame, tensors[below(tensors.size())]),
                            below(static_cast<std::size_t>(ir.replication())),
                            below(static_cast<std::size_t>(ir.replication()))};
    const auto labels = ir.partitions().labels(flow.fact(question.value));
    if (labels[question.r] != labels[question.s]) return question;
  }
}

template <class Numbers>
void print_list(const char* name, const char* format, const Numbers& numbers) {
  std::printf(R"(, "%s": [)", name);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) std::printf(", ");
    std::printf(format, numbers[i]);
  }
  std::printf("]");
}

}  // namespace

void explain_random_values(const std::string& name, const Ir& ir, int questions) {
  const PartitionAnalysis facts(ir);
  Explainer explainer(facts);
  std::mt19937 random(1);
  std::vector<double> seconds;
  std::vector<std::size_t> steps, lines;
  for (int i = 0; i < questions; ++i) {
    const Question question = ask(explainer.flow(), random);
    const auto start = std::chrono::steady_clock::now();
    const Explanation found =
        explainer.explain(question.value.storage, question.value, question.r, question.s);
    const std::string text = to_string(explainer.flow(), found);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    steps.push_back(found.path.size());
    lines.push_back(1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
  }
  std::printf(R"({"program": "%s", "ops": %zu)", name.c_str(), ir.num_ops());
  print_list("seconds", "%.7f", seconds);
  print_list("steps", "%zu", steps);
  print_list("lines", "%zu", lines);
  std::printf("}\n");
}

}  // namespace popsr::bench
