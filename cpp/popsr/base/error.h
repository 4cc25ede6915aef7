// Typed errors of popsr. Text convention: "op: what is wrong, got X, expected Y", one line, lower case.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace popsr {

/// Base of every error that popsr raises on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ShapeError : public Error {
  using Error::Error;
};  ///< Error that is also a Python ValueError.
class DTypeError : public Error {
  using Error::Error;
};  ///< Error that is also a Python TypeError.
class AttributeValueError : public Error {
  using Error::Error;
};  ///< Error that is also a Python ValueError.
class GraphError : public Error {
  using Error::Error;
};  ///< Error that is also a Python ValueError.
class ReplicaError : public Error {
  using Error::Error;
};  ///< Error that is also a Python ValueError.
class OutOfRangeError : public Error {
  using Error::Error;
};  ///< Error that is also a Python IndexError.
class NameError : public Error {
  using Error::Error;
};  ///< Error that is also a Python KeyError.
class StoppedError : public Error {
  using Error::Error;
};  ///< Error that is also a Python RuntimeError.
class FloatingPointError : public Error {
  using Error::Error;
};  ///< Error that is also Python's builtin FloatingPointError.
class RankError : public Error {
  using Error::Error;
};  ///< Error that is also a Python RuntimeError.
class InternalError : public Error {
  using Error::Error;
};  ///< A defect of popsr: please report it.

/// Throws `E` with a formatted one-line message.
template <class E, class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace popsr

/// Throws InternalError naming the broken invariant; for conditions that no input can make false.
#define POPSR_CHECK(condition)                                                                        \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      ::popsr::raise<::popsr::InternalError>("internal: {} does not hold at {}:{}, please report it", \
                                             #condition, __FILE__, __LINE__);                         \
    }                                                                                                 \
  } while (false)
