// cppimport
// The operator's class and how Python creates it. A device has the codelet; other implementations register their own.
#include <map>
#include <popart/graph.hpp>
#include <popart/op.hpp>
#include <popart/opmanager.hpp>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace {

const popart::OperatorIdentifier kRope{"llama.ops", "Rope", 1};

class RopeOp : public popart::Op {
 public:
  RopeOp(const popart::OperatorIdentifier& id, int64_t rotaryDim, const popart::Op::Settings& settings)
      : Op(id, settings), rotaryDim_(rotaryDim) {}
  std::unique_ptr<popart::Op> clone() const override { return std::make_unique<RopeOp>(*this); }
  void setup() override { outInfo(0) = inInfo(0); }
  void appendOutlineAttributes(popart::OpSerialiserBase& os) const override {
    Op::appendOutlineAttributes(os);
    os.appendAttribute("rotary_dim", rotaryDim_);
  }
  float getSubgraphValue() const override { return getHighSubgraphValue(); }

  static RopeOp* createOpInGraph(popart::Graph& graph, const std::map<int, std::string>& inputs,
                                 const std::map<int, std::string>& outputs, int64_t rotaryDim,
                                 const popart::Op::Settings& settings) {
    return graph.createConnectedOp<RopeOp>(inputs, outputs, kRope, rotaryDim, settings);
  }

 private:
  int64_t rotaryDim_;
};

}  // namespace

PYBIND11_MODULE(rope_binding, m) {
  py::class_<RopeOp, popart::Op>(m, "Rope").def_static("createOpInGraph", &RopeOp::createOpInGraph);
}
