// Type popsr.sr.Key: an immutable noise key that remembers how it was made.
#pragma once

#include <string>

#include "popsr/bindings/bindings.h"
#include "popsr/kernels/contract/noise_key.h"

namespace popsr::bindings {

class SrKey {
 public:
  explicit SrKey(std::uint64_t seed);
  SrKey(kernels::NoiseKey words, std::string text) : words_(words), text_(std::move(text)) {}

  SrKey fold_in(std::uint64_t data) const;
  SrKey fold_in(std::string_view utf8, const std::string& quoted) const;
  SrKey at(std::uint64_t step) const;
  SrKey moment(std::uint64_t index) const;

  const kernels::NoiseKey& words() const { return words_; }
  const std::string& text() const { return text_; }  ///< Expression that makes this key.

 private:
  SrKey then(kernels::NoiseKey words, const std::string& call) const;

  kernels::NoiseKey words_;
  std::string text_;
};

void bind_sr_key(py::module_& m);

/// Reads an integer 0 .. 2**64 - 1 of any integer type of Python; throws DTypeError or AttributeValueError.
std::uint64_t to_word(const char* where, py::handle value);

}  // namespace popsr::bindings
