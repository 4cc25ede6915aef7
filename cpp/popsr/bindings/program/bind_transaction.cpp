// Calls of Python functions that change programs completely or not at all.
//
// A C function, so that nothing comes between a call and the end of its transactions: Python runs handlers of
// signals between instructions of Python code.
#include <algorithm>
#include <new>
#include <utility>

#include "popsr/bindings/bindings.h"
#include "popsr/bindings/gil.h"
#include "popsr/bindings/program/program.h"

namespace popsr::bindings {

class CallScope {
 public:
  CallScope() : outer_(innermost) { innermost = this; }
  ~CallScope() { innermost = outer_; }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  /// Opens a transaction of the program in this call and those around it, where there is none yet.
  void join(Program& program) {
    if (has(program)) return;
    if (outer_ != nullptr) outer_->join(program);
    if (first_) {
      more_.push_back(std::make_unique<Member>(program));
    } else {
      first_.emplace(program);
    }
  }

  void commit() {
    for_each([this](Member& member) {
      member.transaction->commit();
      finish(member);
    });
  }

  /// Keeps the exception that is set; one that comes meanwhile, Ctrl-C, goes first.
  void roll_back() {
    py::error_scope error;
    for_each([&](Member& member) {
      const Counters end = member.program->counters();
      member.transaction.reset();
      const Counters begin = member.program->counters();
      constexpr int kAttempts = 16;
      for (int attempt = 0; attempt < kAttempts && !member.program->notify_undo(member.undo, begin, end);
           ++attempt) {
        Py_CLEAR(error.type);
        Py_CLEAR(error.value);
        Py_CLEAR(error.trace);
        PyErr_Fetch(&error.type, &error.value, &error.trace);
      }
      finish(member);
    });
  }

  static thread_local CallScope* innermost;

 private:
  struct Member {
    explicit Member(Program& changed)
        : program(changed.shared_from_this()),
          undo(changed.undo_size()),
          transaction(std::in_place, changed) {}
    std::shared_ptr<Program> program;
    Py_ssize_t undo;
    std::optional<Transaction> transaction;
  };

  bool has(const Program& program) const {
    const auto is = [&program](const auto& member) { return member->program.get() == &program; };
    return first_ && (is(first_) || std::ranges::any_of(more_, is));
  }

  void finish(const Member& member) const {
    if (outer_ == nullptr) member.program->clear_undo();
  }

  /// The last one first.
  template <class Visit>
  void for_each(const Visit& visit) {
    while (!more_.empty()) {
      visit(*more_.back());
      more_.pop_back();
    }
    if (first_) visit(*first_);
    first_.reset();
  }

  CallScope* outer_;
  std::optional<Member> first_;  ///< Most calls change one program.
  std::vector<std::unique_ptr<Member>> more_;
};

thread_local CallScope* CallScope::innermost = nullptr;

void Program::set_owner(py::list undo, py::object rolled_back) {
  undo_ = std::move(undo);
  rolled_back_ = std::move(rolled_back);
}

bool Program::join() {
  if (CallScope::innermost == nullptr) return false;
  if (joins_) return true;  // opens its transactions
  joins_ = true;
  try {
    CallScope::innermost->join(*this);
  } catch (...) {
    joins_ = false;
    throw;
  }
  joins_ = false;
  return true;
}

Py_ssize_t Program::undo_size() const { return undo_ ? PyList_GET_SIZE(undo_.ptr()) : 0; }

bool Program::notify_undo(Py_ssize_t undo, const Counters& begin, const Counters& end) const {
  if (begin == end && undo_size() == undo) return true;
  if (!rolled_back_) return true;
  PyObject* const function = PyObject_CallNoArgs(rolled_back_.ptr());
  if (function == nullptr) return false;
  PyObject* result = function;
  if (function != Py_None) {
    result = PyObject_CallFunction(function, "n(nn)(nn)(nn)(nn)(nn)", undo, begin.graphs, end.graphs,
                                   begin.tensors, end.tensors, begin.ops, end.ops, begin.streams, end.streams,
                                   begin.remotes, end.remotes);
    Py_DECREF(function);
  }
  Py_XDECREF(result);
  return result != nullptr;
}

void Program::clear_undo() const {
  const Py_ssize_t size = undo_size();
  if (size == 0) return;
  const py::error_scope error;
  PyList_SetSlice(undo_.ptr(), 0, size, nullptr);
  PyErr_Clear();
}

namespace {

/// transact(function, *args, **kwargs)
PyObject* transact(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  if (count < 1) {
    PyErr_SetString(PyExc_TypeError, "transact: no function, got no arguments, expected one");
    return nullptr;
  }
  CallScope scope;
  PyObject* result = vectorcall(args[0], args + 1, count - 1, names);
  if (result == nullptr) {
    scope.roll_back();
  } else {
    scope.commit();
  }
  return result;
}

}  // namespace

void bind_transaction(py::module_& m) {
  static PyMethodDef def = {
      "transact", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(transact)),
      METH_FASTCALL | METH_KEYWORDS,
      "transact(function, *args, **kwargs): call it; if it raises, every Ir that it changed is as it was."};
  m.attr("transact") = py::reinterpret_steal<py::object>(PyCFunction_New(&def, nullptr));
}

}  // namespace popsr::bindings
