// Discrete Fourier transforms of one length: passes of small factors (Stockham's order), or a convolution
// of chirps if a prime factor is large (Bluestein). All is float64; the order of sums is fixed by the
// length alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "popsr/kernels/contract/kernel_table.h"

namespace popsr {

/// Complex number with plain products, without std::complex's rules for infinities.
struct Complex {
  double re = 0, im = 0;

  friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  friend Complex operator*(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  friend Complex operator*(Complex a, double b) { return {a.re * b, a.im * b}; }
  Complex conjugate() const { return {re, -im}; }
  /// Product with -i.
  Complex turned() const { return {im, -re}; }
};

/// Values e^(-2 pi i x) for each x, computed in float64 by the kernels, whose bits do not depend on the C
/// library.
inline std::vector<Complex> turns(const kernels::KernelTable& kernels, std::vector<double> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  for (double& each : x) each *= -2 * std::numbers::pi;
  std::vector<double> cosines(x.size()), sines(x.size());
  const void* const in[] = {x.data()};
  kernels.elementwise(kernels::ElementwiseOp::kCos, kernels::Compute::kF64)(cosines.data(), nullptr, in, n,
                                                                            nullptr);
  kernels.elementwise(kernels::ElementwiseOp::kSin, kernels::Compute::kF64)(sines.data(), nullptr, in, n,
                                                                            nullptr);
  std::vector<Complex> made(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) made[i] = {cosines[i], sines[i]};
  return made;
}

class FftPlan {
 public:
  FftPlan(const kernels::KernelTable& kernels, std::int64_t n) : n_(n) {
    std::int64_t rest = n;
    for (const std::int64_t factor : {4, 2, 3, 5, 7, 11, 13}) {
      while (rest > 1 && rest % factor == 0) {
        factors_.push_back(factor);
        rest /= factor;
      }
    }
    std::vector<double> parts(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t chirp = k * k % (2 * n);  // Of 2 n, exact.
      parts[static_cast<std::size_t>(k)] = rest > 1 ? static_cast<double>(chirp) / static_cast<double>(2 * n)
                                                    : static_cast<double>(k) / static_cast<double>(n);
    }
    roots_ = turns(kernels, std::move(parts));
    if (rest > 1) prepare_convolution(kernels);
  }

  /// Elements of workspace that `run` needs.
  std::int64_t room() const { return convolution_ ? 2 * convolution_->n_ : n_; }
  /// Transforms n numbers in place, forward and without a factor.
  void run(Complex* data, Complex* room) const { convolution_ ? convolve(data, room) : pass_all(data, room); }

 private:
  void pass_all(Complex* data, Complex* room) const {
    Complex *from = data, *to = room;
    std::int64_t length = n_, stride = 1;
    for (const std::int64_t factor : factors_) {
      pass(factor, length / factor, stride, from, to);
      length /= factor;
      stride *= factor;
      std::swap(from, to);
    }
    if (from != data) std::copy_n(from, n_, data);
  }

  /// One pass: element q of sequence p + k * count goes to sequence r * p + j, as sums over k times a root.
  void pass(std::int64_t r, std::int64_t count, std::int64_t stride, const Complex* from, Complex* to) const {
    for (std::int64_t p = 0; p < count; ++p) {
      const Complex* const x = from + p * stride;
      Complex* const y = to + r * p * stride;
      if (r == 2) {
        pass_2(p, count * stride, stride, x, y);
      } else if (r == 4) {
        pass_4(p, count * stride, stride, x, y);
      } else {
        pass_any(r, p, count * stride, stride, x, y);
      }
    }
  }
  /// Root by which output j of sequence p is multiplied.
  Complex turn(std::int64_t p, std::int64_t j, std::int64_t stride) const {
    return roots_[static_cast<std::size_t>(p * j * stride)];
  }

  void pass_2(std::int64_t p, std::int64_t step, std::int64_t stride, const Complex* x, Complex* y) const {
    const Complex w = turn(p, 1, stride);
    for (std::int64_t q = 0; q < stride; ++q) {
      const Complex a = x[q], b = x[q + step];
      y[q] = a + b;
      y[q + stride] = (a - b) * w;
    }
  }
  void pass_4(std::int64_t p, std::int64_t step, std::int64_t stride, const Complex* x, Complex* y) const {
    const Complex w1 = turn(p, 1, stride), w2 = turn(p, 2, stride), w3 = turn(p, 3, stride);
    for (std::int64_t q = 0; q < stride; ++q) {
      const Complex a = x[q], b = x[q + step], c = x[q + 2 * step], d = x[q + 3 * step];
      const Complex even = a + c, odd = a - c, sum = b + d, turned = (b - d).turned();
      y[q] = even + sum;
      y[q + stride] = (odd + turned) * w1;
      y[q + 2 * stride] = (even - sum) * w2;
      y[q + 3 * stride] = (odd - turned) * w3;
    }
  }
  void pass_any(std::int64_t r, std::int64_t p, std::int64_t step, std::int64_t stride, const Complex* x,
                Complex* y) const {
    for (std::int64_t j = 0; j < r; ++j) {
      Complex* const sums = y + j * stride;
      std::copy_n(x, stride, sums);
      for (std::int64_t k = 1; k < r; ++k) {
        const Complex root = roots_[static_cast<std::size_t>(j * k % r * (n_ / r))];
        for (std::int64_t q = 0; q < stride; ++q) sums[q] = sums[q] + x[q + k * step] * root;
      }
      const Complex w = turn(p, j, stride);
      for (std::int64_t q = 0; q < stride; ++q) sums[q] = sums[q] * w;
    }
  }

  // A product of numbers j and k is half of j^2 + k^2 - (k - j)^2: the transform is a convolution of chirps.

  void prepare_convolution(const kernels::KernelTable& kernels) {
    std::int64_t length = 1;
    while (length < 2 * n_ - 1) length *= 2;
    convolution_ = std::make_shared<const FftPlan>(kernels, length);
    std::vector<Complex> room(static_cast<std::size_t>(length));
    kernel_.resize(static_cast<std::size_t>(length));
    for (std::int64_t j = 0; j < n_; ++j) {
      const Complex chirp = roots_[static_cast<std::size_t>(j)].conjugate();
      kernel_[static_cast<std::size_t>(j)] = chirp;
      if (j > 0) kernel_[static_cast<std::size_t>(length - j)] = chirp;
    }
    convolution_->run(kernel_.data(), room.data());
    for (Complex& each : kernel_) each = each * (1 / static_cast<double>(length));
  }
  void convolve(Complex* data, Complex* room) const {
    const std::int64_t length = convolution_->n_;
    Complex* const wide = room;
    Complex* const more = room + length;
    for (std::int64_t j = 0; j < n_; ++j) wide[j] = data[j] * roots_[static_cast<std::size_t>(j)];
    std::fill(wide + n_, wide + length, Complex{});
    convolution_->run(wide, more);
    // The inverse of a transform is the transform of the conjugates, conjugated.
    for (std::int64_t j = 0; j < length; ++j) {
      wide[j] = (wide[j] * kernel_[static_cast<std::size_t>(j)]).conjugate();
    }
    convolution_->run(wide, more);
    for (std::int64_t j = 0; j < n_; ++j) {
      data[j] = wide[j].conjugate() * roots_[static_cast<std::size_t>(j)];
    }
  }

  std::int64_t n_;
  std::vector<std::int64_t> factors_ = {};
  std::vector<Complex> roots_ = {};  ///< Roots of unity; with a convolution, the chirp.
  std::shared_ptr<const FftPlan> convolution_ = nullptr;
  std::vector<Complex> kernel_ = {};  ///< Transform of the chirp, divided by its length.
};

}  // namespace popsr
