// The Ir of Python: takes part in calls that change programs completely or not at all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "popsr/bindings/bindings.h"
#include "popsr/ir/edit/transaction.h"

namespace popsr::bindings {

/// Scope of one call of transact(): changes of all Irs by Python code.
class CallScope;

/// Ir that joins the calls of transact() that are running on the thread that changes it.
class Program final : public Ir, public std::enable_shared_from_this<Program> {
 public:
  using Ir::Ir;

  /// Registers the owner. `undo`: list of the undo notes of Python code. `rolled_back`: weak reference to a
  /// function that is called with the objects that a failed call had made.
  void set_owner(py::list undo, py::object rolled_back);
  /// Joins a running call of transact(), so that its failure is reported to the owner even if nothing
  /// changes here; false if there is none.
  bool join();

  Py_ssize_t undo_size() const;
  /// Notifies the owner that a call failed: `undo` is the number of undo notes when it began, `begin` and
  /// `end` delimit what it had made. False if that raises, with the exception set.
  bool notify_undo(Py_ssize_t undo, const Counters& begin, const Counters& end) const;
  void clear_undo() const;

 private:
  void about_to_change() override { join(); }

  py::object undo_, rolled_back_;
  bool joins_ = false;
};

}  // namespace popsr::bindings
