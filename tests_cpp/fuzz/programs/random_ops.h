// Steps of random programs that both judges know: writes in place, remote memory, collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fuzz/op_pools.h"
#include "fuzz/programs/random_builder.h"

namespace popsr::test {

class RandomOps : public RandomBuilder {
 public:
  using RandomBuilder::RandomBuilder;

 protected:
  static constexpr std::size_t kComputations = 28;

  /// Ops of the program's registry.
  const OpPools& op_pools();
  std::string_view one_of(const OpPools::Names& names) { return names[below(names.size())]; }

  /// An op that writes, or reaches remote memory.
  void modify(std::size_t kind);
  /// A view of a part of a value, or of all of it. Reads and writes of it are ops like others.
  void view_part();
  /// An op that writes nothing; kind < kComputations.
  void compute(std::size_t kind);

  /// Tensors that may be written in place.
  TensorId target(std::string_view op);
  /// Notes that the graph writes the memory of `t`, which it may have been given.
  void wrote(TensorId t);

 private:
  RemoteId buffer();
  Attrs entry(std::vector<TensorId>& inputs);
  void remote(std::size_t kind);
  void load_into();

  /// Reduction of the members' values: by sum, where the judges tell reductions apart by anything.
  Attrs reduction(TensorId t);
  Attrs with_group(Attrs attrs);
  void pass_on(TensorId t);
  void collective(std::string_view op);
  void any_collective();
  void gather();
  void gather_grad();
  void broadcast(std::string_view op);
  void permute();
  void part(std::string_view op);
  std::vector<std::int64_t> destinations();

  std::optional<RemoteId> buffer_;
  std::optional<OpPools> pools_;
};

}  // namespace popsr::test
