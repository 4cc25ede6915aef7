// Links between the ranks of a session. Python moves the bytes: the core links no MPI.
#include <memory>
#include <tuple>
#include <utility>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/records.h"
#include "popsr/kernels/float_env.h"
#include "popsr/runtime/ranks/rank_link.h"

namespace popsr::bindings {
namespace {

using Function = As<"collections.abc.Callable[..., object]">;

/// Calls Python with views of the core's memory, which it must not keep. `fail`: called with an exception of
/// the others, after which the ranks are not at the same place any more.
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
    const WithGil held;
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
    const WithGil held;
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

}  // namespace

void bind_ranks(py::module_& m) {
  py::class_<RankLink, std::shared_ptr<RankLink>> link(m, "RankLink");
  link.def(py::init(&make_link), py::arg("rank"), py::arg("ranks"), py::arg("exchange"), py::arg("gather"),
           py::arg("fail"))
      .def("agree", &agree, py::arg("call"), py::arg("items"), py::arg("failure"))
      .def_property("is_told", &RankLink::is_told, &RankLink::set_told)
      .def_property_readonly("told",
                             [](const RankLink& self) {
                               const RankFailure& told = self.told();
                               return Failure(told.rank, told.kind, told.text);
                             })
      .def(
          "set_chains",
          [](RankLink& self, std::size_t from_bytes, std::int64_t chunk_elements) {
            self.tuning() = {from_bytes, chunk_elements};
          },
          py::arg("from_bytes"), py::arg("chunk_elements"))
      .def(
          "local_replicas",
          [](const RankLink& self, std::int64_t replicas) {
            const RankMap map = self.map(replicas);
            return std::pair(map.begin(), map.end());
          },
          py::arg("replicas"));
}

}  // namespace popsr::bindings
