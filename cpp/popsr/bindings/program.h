// The Ir of Python: takes part in calls that change programs completely or not at all.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "popsr/bindings/bindings.h"
#include "popsr/ir/edit/transaction.h"

namespace popsr::bindings {

/// Changes of Python code in one call of transact(), of all Irs.
class CallScope;

/// An Ir that joins the calls of transact() that are running in the thread that changes it.
class Program final : public Ir, public std::enable_shared_from_this<Program> {
 public:
  using Ir::Ir;

  /// `undo`: list of what Python code has to take back. `rolled_back`: a weak reference to a function that is
  /// called with what a failed call had made.
  void set_owner(py::list undo, py::object rolled_back);
  /// True if a call of transact() is running: then a failure of it is told to the owner, also where nothing
  /// here changes.
  bool join();

  Py_ssize_t undo_size() const;
  /// Tells the owner that a call failed which began with so many entries of `undo`, and what it had made.
  /// False when that raises, with the exception set.
  bool notify_undo(Py_ssize_t undo, const Counters& begin, const Counters& end) const;
  void clear_undo() const;

 private:
  void about_to_change() override { join(); }

  py::object undo_, rolled_back_;
  bool joins_ = false;
};

}  // namespace popsr::bindings
