// Error for memory that ran out, with its purpose.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <new>
#include <string>
#include <string_view>

namespace popsr {

/// Error: less memory is available than an object needs at once; MemoryError in Python.
class NoMemory final : public std::bad_alloc {
 public:
  NoMemory(std::string_view what, std::size_t bytes, std::string_view purpose = "")
      : text_(fmt::format("{}: not enough memory, got a need of {} bytes at once{}, expected less", what,
                          bytes, purpose)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace popsr
