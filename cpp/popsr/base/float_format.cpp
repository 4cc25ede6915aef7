#include "popsr/base/float_format.h"

#include <cmath>
#include <limits>

namespace popsr {

double number_of(FloatFormat format, std::uint64_t bits) {
  const FloatFormatInfo& row = info(format);
  const std::uint64_t code = bits & (row.sign_bit - 1);
  const double sign = (bits & row.sign_bit) != 0 ? -1.0 : 1.0;
  if (is_nan(format, bits)) return std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  if (code > row.max_code) return sign * std::numeric_limits<double>::infinity();
  const std::uint64_t hidden = std::uint64_t{1} << row.mantissa_bits;
  const std::uint64_t field = code >> row.mantissa_bits;
  const std::uint64_t significand = field == 0 ? code : (code & (hidden - 1)) | hidden;
  const int exponent = field == 0 ? 1 : static_cast<int>(field);
  return std::ldexp(sign * static_cast<double>(significand), exponent - row.bias - row.mantissa_bits);
}

double greatest(FloatFormat format) { return number_of(format, info(format).max_code); }

}  // namespace popsr
