// Changes of a program that are made completely or not at all.
#pragma once

#include <cstddef>

namespace popsr {

class Ir;

/// Scope that undoes all changes of the Ir since its construction, unless it was committed; undoing throws
/// nothing and allocates nothing. Transactions nest: functions of Ir that change the program open one of
/// their own. When one ends, so do the ones opened after it.
class Transaction {
 public:
  /// Opens the transaction. Throws std::bad_alloc, with nothing changed.
  explicit Transaction(Ir& ir);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit() noexcept;

 private:
  Ir& ir_;
  std::size_t level_;
  bool open_ = true;
};

}  // namespace popsr
