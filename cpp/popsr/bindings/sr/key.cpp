#include "popsr/bindings/sr/key.h"

#include "popsr/base/error.h"
#include "popsr/bindings/classes.h"
#include "popsr/bindings/python_values.h"
#include "popsr/bindings/records.h"
#include "popsr/kernels/loader.h"
#include "popsr/kernels/noise.h"

namespace popsr::bindings {
namespace {

using kernels::Domain;
using kernels::kernel_table;
using kernels::NoiseKey;

/// A longer expression loses its middle: keys may be derived in a loop.
constexpr std::size_t kMaxText = 160;

NoiseKey derive_text(NoiseKey key, std::string_view utf8) {
  key = derive_key(kernel_table(), key, Domain::kTextLength, utf8.size());
  for (std::size_t start = 0; start < utf8.size(); start += 8) {
    std::uint64_t component = 0;
    for (std::size_t i = start; i < utf8.size() && i < start + 8; ++i) {
      component |= static_cast<std::uint64_t>(static_cast<unsigned char>(utf8[i])) << (8 * (i - start));
    }
    key = derive_key(kernel_table(), key, Domain::kText, component);
  }
  return key;
}

SrKey derive_object(const SrKey& key, const As<"int | str">& data) {
  if (!PyUnicode_Check(data.ptr())) {
    if (PyIndex_Check(data.ptr()) == 0) {
      raise<DTypeError>("Key.fold_in: got {}, expected an integer or a text", shown(data));
    }
    return key.fold_in(to_word("Key.fold_in", data));
  }
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(data.ptr(), &size);
  if (utf8 == nullptr) {
    PyErr_Clear();
    raise<AttributeValueError>("Key.fold_in: text has no UTF-8 form, got {}, expected one without surrogates",
                               shown(data));
  }
  const auto quoted = py::reinterpret_steal<py::str>(PyUnicode_Type.tp_repr(data.ptr()));
  return key.fold_in(std::string_view(utf8, static_cast<std::size_t>(size)), std::string(quoted));
}

SrKey from_words(std::uint64_t lo, std::uint64_t hi, const std::string& text) {
  return {NoiseKey{lo, hi}, text};
}

bool same(const SrKey& a, const SrKey& b) {
  return a.words().lo == b.words().lo && a.words().hi == b.words().hi;
}

}  // namespace

SrKey::SrKey(std::uint64_t seed) : SrKey(seed_key(kernel_table(), seed), fmt::format("Key({})", seed)) {}

SrKey SrKey::then(NoiseKey words, const std::string& call) const {
  std::string text = fmt::format("{}.{}", text_, call);
  if (text.size() > kMaxText) {
    const std::string_view all = text, head = all.substr(0, all.find(')') + 1);
    const std::string_view last =
        all.substr(all.size() - std::min(call.size() + 1, all.size() - head.size()));
    text = fmt::format("{}.<...>{}", head, last);
  }
  return {words, std::move(text)};
}

SrKey SrKey::fold_in(std::uint64_t data) const {
  return then(derive_key(kernel_table(), words_, Domain::kInteger, data), fmt::format("fold_in({})", data));
}
SrKey SrKey::fold_in(std::string_view utf8, const std::string& quoted) const {
  return then(derive_text(words_, utf8), fmt::format("fold_in({})", quoted));
}
SrKey SrKey::at(std::uint64_t step) const {
  return then(derive_key(kernel_table(), words_, Domain::kAt, step), fmt::format("at({})", step));
}
SrKey SrKey::moment(std::uint64_t index) const {
  return then(derive_key(kernel_table(), words_, Domain::kMoment, index), fmt::format("moment({})", index));
}

std::uint64_t to_word(const char* where, py::handle value) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {  // also arrays and what raises in its own __index__
    PyErr_Clear();
    raise<DTypeError>("{}: not an integer, got {}, expected 0 to 2**64 - 1", where, shown(value));
  }
  const unsigned long long word = PyLong_AsUnsignedLongLong(number.ptr());
  if (word == ~0ULL && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise<AttributeValueError>("{}: out of range, got {}, expected 0 to 2**64 - 1", where, shown(number));
  }
  return word;
}

void bind_sr_key(py::module_& m) {
  py::class_<SrKey> key(
      m, "Key", py::is_final(),
      "Says which random numbers are drawn: Key(seed), a 64-bit integer, then .fold_in(int or "
      "str) and .at(step).\n\nImmutable, hashable, picklable. The order of fold_in matters.");
  guard(key)
      .def(py::init([](const AnInt& seed) { return std::make_unique<SrKey>(to_word("Key", seed)); }),
           py::arg("seed"))
      .def(no_other_arguments<SrKey>("Key", "(seed)"))
      .def("fold_in", &derive_object, py::arg("data"), py::pos_only())
      .def(
          "at", [](const SrKey& key, const AnInt& step) { return key.at(to_word("Key.at", step)); },
          py::arg("step"), py::pos_only())
      .def_property_readonly("words",
                             [](const SrKey& key) { return py::make_tuple(key.words().lo, key.words().hi); })
      .def("__eq__",
           [](const SrKey& key, const py::object& other) -> py::object {
             if (!py::isinstance<SrKey>(other)) {
               return py::reinterpret_borrow<py::object>(Py_NotImplemented);
             }
             return py::bool_(same(key, other.cast<const SrKey&>()));
           })
      .def("__hash__", [](const SrKey& key) { return key.words().lo ^ (key.words().hi >> 1); })
      .def("__repr__", &SrKey::text)
      .def("__reduce__",
           [](const SrKey& key) {
             return rebuilt_in("popsr.sr", "_key", key.words().lo, key.words().hi, key.text());
           })
      .def("__copy__", [](const As<"Key">& key) { return key; })
      .def("__deepcopy__", [](const As<"Key">& key, const py::dict&) { return key; });
  refuse_other_arguments(key, "Key", {{"fold_in", "int or str"}, {"at", "int"}});
  m.def("_key_from_words", &from_words);
  m.def("moment_key", &SrKey::moment);
}

}  // namespace popsr::bindings
