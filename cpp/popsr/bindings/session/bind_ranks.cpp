// Links between the ranks of a session. Python moves the bytes: the core links no MPI.
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/kernels/float_env.h"
#include "popsr/runtime/plan/communication.h"
#include "popsr/runtime/ranks/rank_link.h"
#include "popsr/runtime/session/plan_cache.h"

namespace popsr::bindings {
namespace {

using Function = As<"collections.abc.Callable[..., object]">;

/// Transport that calls Python with views of the core's memory, which Python must not keep. `fail`: called
/// with an exception of the others, after which the ranks are no longer at the same point.
class PythonTransport final : public Transport {
 public:
  PythonTransport(std::int64_t rank, std::int64_t ranks, py::object exchange, py::object gather,
                  py::object fail)
      : rank_(rank),
        ranks_(ranks),
        exchange_(std::move(exchange)),
        gather_(std::move(gather)),
        fail_(std::move(fail)) {}

  std::int64_t ranks() const override { return ranks_; }
  std::int64_t rank() const override { return rank_; }

  void exchange(std::span<const OutgoingBytes> outgoing, std::span<const IncomingBytes> incoming) override {
    if (outgoing.empty() && incoming.empty()) return;
    const WithGil gil;
    const kernels::FloatEnvironment environment;  // Python code may change it
    py::list sends, receives;
    for (const OutgoingBytes& each : outgoing)
      sends.append(py::make_tuple(each.rank, view(each.data, each.size)));
    for (const IncomingBytes& each : incoming) {
      receives.append(py::make_tuple(each.rank, view(each.data, each.size)));
    }
    call(exchange_, py::make_tuple(sends, receives));
  }

  void gather(std::span<const std::byte> mine, std::byte* all) override {
    const WithGil gil;
    const kernels::FloatEnvironment environment;
    const std::size_t size = mine.size() * static_cast<std::size_t>(ranks_);
    call(gather_, py::make_tuple(view(mine.data(), mine.size()), view(all, size)));
  }

 private:
  void call(const py::object& function, const py::tuple& arguments) const {
    try {
      call_python(function, arguments);
    } catch (const py::error_already_set& error) {
      call_python(fail_, py::make_tuple(error.value()));
      throw;
    }
  }
  static py::memoryview view(const std::byte* data, std::size_t size) {
    return py::memoryview::from_memory(data, static_cast<py::ssize_t>(size));
  }
  static py::memoryview view(std::byte* data, std::size_t size) {
    return py::memoryview::from_memory(data, static_cast<py::ssize_t>(size));
  }

  std::int64_t rank_, ranks_;
  py::object exchange_, gather_, fail_;
};

std::shared_ptr<RankLink> make_link(std::int64_t rank, std::int64_t ranks, const Function& exchange,
                                    const Function& gather, const Function& fail) {
  return std::make_shared<RankLink>(std::make_unique<PythonTransport>(rank, ranks, exchange, gather, fail));
}

const char* name_of(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::kBlocks:
      return "blocks";
    case ExchangeKind::kGather:
      return "gather";
    default:
      return "chain";
  }
}

/// A row for each rank: bytes and messages that it sends, those that it receives, messages and bytes of its
/// path.
py::array_t<std::uint64_t> traffic_array(const ExchangeTraffic& traffic) {
  py::array_t<std::uint64_t> array({static_cast<py::ssize_t>(traffic.ranks.size()), py::ssize_t{6}});
  std::uint64_t* out = array.mutable_data();
  for (std::size_t rank = 0; rank < traffic.ranks.size(); ++rank) {
    const Traffic& each = traffic.ranks[rank];
    const CriticalPath& path = traffic.paths[rank];
    for (const std::uint64_t value : {each.sent_bytes, each.sent_messages, each.received_bytes,
                                      each.received_messages, path.messages, path.bytes}) {
      *out++ = value;
    }
  }
  array.attr("setflags")(false);
  return array;
}

using Items = std::vector<std::pair<std::string, std::string>>;
using Failure = std::tuple<std::int64_t, std::string, std::string>;

/// `failure`: class and text of the error that keeps this rank from the call. Returns the rank, class and
/// text of the failure that counts.
std::optional<Failure> agree(RankLink& link, std::string call, const Items& items,
                             const std::optional<std::pair<std::string, std::string>>& failure) {
  std::vector<RankItem> all;
  for (const auto& [name, value] : items) all.push_back({name, value});
  std::optional<RankFailure> mine;
  if (failure) mine = {.kind = failure->first, .text = failure->second};
  const std::optional<RankFailure> first =
      link.agree(call_of(std::move(call), std::move(all)), mine ? &*mine : nullptr);
  if (!first) return std::nullopt;
  return Failure(first->rank, first->kind, first->text);
}

/// Planned exchanges; arrays with the same traffic are shared. `chains`: as RankLink.set_chains takes them;
/// None: the default.
std::vector<Record<"PlannedExchange">> exchanges_of(
    const PartitionAnalysis& facts, bool dedup, double check, bool check_floats, bool optimise,
    std::int64_t ranks, std::size_t message_bytes,
    const std::optional<std::pair<std::size_t, std::int64_t>>& chains) {
  const kernels::FloatEnvironment environment;
  const SessionOptions options{
      .dedup = dedup, .check = check, .check_floats = check_floats, .optimise = optimise};
  const ChainTuning tuning = chains ? ChainTuning{chains->first, chains->second} : ChainTuning();
  const RankMap map{facts.ir().replication(), ranks, 0};
  std::map<const ExchangeTraffic*, py::array_t<std::uint64_t>> arrays;
  std::vector<Record<"PlannedExchange">> result;
  for (const PlannedExchange& each :
       planned_exchanges(facts, plan_options(options, map, tuning), message_bytes)) {
    const auto [it, is_new] = arrays.try_emplace(each.traffic.get());
    if (is_new) it->second = traffic_array(*each.traffic);
    result.push_back(Record<"PlannedExchange">::of(
        each.op->id, each.tensor == kNone ? std::nullopt : std::optional(each.tensor), each.groups,
        each.value_bytes, name_of(each.kind), each.executions, each.is_bound, it->second));
  }
  return result;
}

}  // namespace

void bind_ranks(py::module_& m) {
  py::class_<RankLink, std::shared_ptr<RankLink>> link(m, "RankLink");
  link.def(py::init(&make_link), py::arg("rank"), py::arg("ranks"), py::arg("exchange"), py::arg("gather"),
           py::arg("fail"))
      .def("agree", &agree, py::arg("call"), py::arg("items"), py::arg("failure"))
      .def_property("is_told", &RankLink::is_failure_shared, &RankLink::set_failure_shared)
      .def_property_readonly("told",
                             [](const RankLink& self) {
                               const RankFailure& shared_failure = self.shared_failure();
                               return Failure(shared_failure.rank, shared_failure.kind, shared_failure.text);
                             })
      .def(
          "set_chains",
          [](RankLink& self, std::size_t from_bytes, std::int64_t chunk_elements) {
            self.tuning() = {from_bytes, chunk_elements};
          },
          py::arg("from_bytes"), py::arg("chunk_elements"))
      .def(
          "set_message_bytes", [](RankLink& self, std::size_t bytes) { self.set_message_bytes(bytes); },
          py::arg("bytes"));
  m.def(
      "rank_share",
      [](std::int64_t replicas, std::int64_t ranks, std::int64_t rank) {
        const RankMap map{replicas, ranks, rank};
        return std::pair(map.begin(), map.end());
      },
      py::arg("replicas"), py::arg("ranks"), py::arg("rank"));
  m.attr("MESSAGE_BYTES") = kMessageBytes;
  m.def("planned_exchanges", &exchanges_of, py::arg("facts"), py::arg("dedup"), py::arg("check"),
        py::arg("check_floats"), py::arg("optimise"), py::arg("ranks"), py::arg("message_bytes"),
        py::arg("chains"));
}

}  // namespace popsr::bindings
