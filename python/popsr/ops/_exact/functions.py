"""Functions: exp, and random functions with those identities that the table of each names.

A random function has its true value at the small fractions of ``_KNOWN`` alone. Two values of it are related only as
this table says:

========================  =====================================================================================
function                  identities
========================  =====================================================================================
exp, exp2, expm1          exp(a + b) = exp(a) exp(b), exp(0) = 1; exp2(x) = exp(x log(2)), expm1(x) = exp(x) - 1
log, log2, log1p          of log none but log(1) = 0; log2(x) = log(x) / log(2), log1p(x) = log(1 + x)
sqrt, rsqrt, pow          sqrt(x) sqrt(x) = x if x is never negative as it is made, as sums of squares are, else none
                          but at squares of fractions; rsqrt(x) = 1 / sqrt(x); x ** n is a product,
                          x ** (n + 1/2) = x ** n sqrt(x) for n >= 0, x ** -e = 1 / x ** e; else exp(e log(x))
cbrt                      odd
sigmoid, swish, tanh,     sigmoid(-x) = 1 - sigmoid(x), tanh(x) = 2 sigmoid(2 x) - 1, swish(x) = x sigmoid(x),
gelu                      gelu(x) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x ** 3)
erf, erfc, geluerf        erf(-x) = -erf(x), erfc(x) = 1 - erf(x), geluerf(x) = x (1 + erf(x / sqrt(2))) / 2
sin, cos, tan             sin and atan odd, cos even; tan(x) = sin(x) / cos(x)
sinh, cosh                from exp: sinh(x) = (exp(x) - exp(-x)) / 2, cosh(x) = (exp(x) + exp(-x)) / 2
asin, acos, atan, erf_inv asin, atan, erf_inv odd; acos(x) = pi / 2 - asin(x)
asinh, atanh, acosh       asinh and atanh odd
========================  =====================================================================================

So exp(log(x)) = x, sqrt(x y) = sqrt(x) sqrt(y), log(x y) = log(x) + log(y) and sigmoid(x) = 1 / (1 + exp(-x)) are
not known, nor is (a sqrt(x)) sqrt(x) = a x, of which no factor is the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from popsr._support.fields import Array, Numbers, select
from popsr.errors import UnsupportedError
from popsr.ops._exact.elementwise import defined
from popsr.ops._exact.registry import Exact, Value, exact

__all__ = ["erf", "log", "rsqrt", "sigmoid", "sqrt"]

_NAN, _INF = math.nan, math.inf


def _root(value: float) -> float:
    """The square root of a fraction whose numerator and denominator are squares."""
    if value < 0:
        return _NAN
    root = math.sqrt(value)
    return root if root * root == value and (root * 2**20).is_integer() else _NAN


# Symmetry, values at -inf and inf, and true values at small fractions.
_KNOWN: dict[str, tuple[str, tuple[float, float], Callable[[float], float] | None]] = {
    "sqrt": ("none", (_NAN, _INF), _root),
    "log": ("none", (_NAN, _INF), lambda x: {1.0: 0.0}.get(x, _NAN)),
    "cbrt": ("odd", (-_INF, _INF), lambda x: x if abs(x) == 1 else _NAN),
    "sigmoid": ("odd", (-0.5, 0.5), None),
    "erf": ("odd", (-1, 1), None),
    "sin": ("odd", (_NAN, _NAN), None),
    "cos": ("even", (_NAN, _NAN), lambda x: 1.0 if x == 0 else _NAN),
    "asin": ("odd", (_NAN, _NAN), None),
    "atan": ("odd", (_NAN, _NAN), None),
    "erf_inv": ("odd", (_NAN, _NAN), lambda x: {1.0: _INF, -1.0: -_INF}.get(x, _NAN)),
    "asinh": ("odd", (-_INF, _INF), None),
    "acosh": ("none", (_NAN, _INF), lambda x: 0.0 if x == 1 else _NAN),
    "atanh": ("odd", (_NAN, _NAN), lambda x: {1.0: _INF, -1.0: -_INF}.get(x, _NAN)),
}


def function(name: str, t: Numbers) -> Numbers:
    """A random function of the table."""
    parity, limits, value_of = _KNOWN[name]
    found = t.random(name, parity, limits)
    if value_of is None:
        return found
    known = t.small()
    places = np.flatnonzero(~np.isnan(known))
    values = np.full(t.size, _NAN)
    cache: dict[float, float] = {}
    for place in places:
        x = float(known.reshape(-1)[place])
        if x not in cache:
            cache[x] = value_of(x)
        values[place] = cache[x]
    hit = ~np.isnan(values).reshape(t.shape)
    if not hit.any():
        return found
    return select(hit, Numbers.of(np.where(hit, values.reshape(t.shape), 0.0), t.low), found)


def sqrt(t: Numbers) -> Numbers:
    """Square root; the square of that of what is never negative is known."""
    root = function("sqrt", t)
    if t.is_positive:
        root.is_positive, root.square = True, t
    return root


def log(t: Numbers) -> Numbers:
    """Natural logarithm; -inf at 0."""
    return select(t.is_zero(), t.constant(-_INF), function("log", t))


def rsqrt(t: Numbers) -> Numbers:
    """1 / sqrt."""
    return sqrt(t).inverse()


def sigmoid(t: Numbers) -> Numbers:
    """Logistic function."""
    return t.constant(0.5) + function("sigmoid", t)


def erf(t: Numbers) -> Numbers:
    """Error function."""
    return function("erf", t)


def power(t: Numbers, e: Numbers) -> Numbers:
    """Power of a number, ``t ** e``."""
    exponents = np.broadcast_to(e.small(), np.broadcast_shapes(t.shape, e.shape))
    if (exponents == 0.5).all():
        return sqrt(t).broadcast_to(exponents.shape)
    twice = exponents * 2
    known = ~np.isnan(twice) & (twice == np.rint(twice)) & (np.abs(exponents) <= 1 << 20)
    sizes = np.where(known, np.abs(exponents), 0)
    whole = np.floor(sizes).astype(np.int64)
    products = t.power(whole)
    if (sizes != whole).any():
        products = select(sizes == whole, products, products * sqrt(t))
    if (known & (exponents < 0)).any():
        products = select(exponents < 0, products.inverse(), products)
    if known.all():
        return products
    return select(known, products, (e * log(t)).exp())


_DENSITY = 1 / math.sqrt(2 * math.pi)


def normal(t: Numbers) -> Numbers:
    """Normal distribution."""
    return (t.constant(1) + erf(t * t.constant(math.sqrt(0.5)))) * t.constant(0.5)


def normal_density(t: Numbers) -> Numbers:
    """Its density."""
    return (t * t * t.constant(-0.5)).exp() * t.constant(_DENSITY)


_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def gelu_exponent(t: Numbers) -> Numbers:
    """2 sqrt(2/pi) (x + 0.044715 x ** 3)."""
    return t.constant(_LINEAR) * (t + t.constant(_CUBIC) * t * t * t)


def _unary(name: str, rule: Callable[[Numbers], Numbers]) -> None:
    exact(name)(lambda _, t: rule(t))


def _slope_of_sigmoid(t: Numbers) -> Numbers:
    s = sigmoid(t)
    return s * (t.constant(1) - s)


def _slope_of_gelu(t: Numbers) -> Numbers:
    u = gelu_exponent(t)
    slope = t.constant(_LINEAR) * (t.constant(1) + t.constant(3) * t.constant(_CUBIC) * t * t)
    return sigmoid(u) + t * _slope_of_sigmoid(u) * slope


def _hyperbolic(t: Numbers, sign: int) -> Numbers:
    return (t.exp() + t.constant(sign) * (-t).exp()) * t.constant(0.5)


def _swish(t: Numbers) -> Numbers:
    return t * sigmoid(t)


def _gelu(t: Numbers) -> Numbers:
    return t * sigmoid(gelu_exponent(t))


def _geluerf(t: Numbers) -> Numbers:
    return t * normal(t)


_FUNCTIONS: dict[str, Callable[[Numbers], Numbers]] = {
    "exp": Numbers.exp,
    "exp2": lambda t: (t * log(t.constant(2))).exp(),
    "expm1": lambda t: t.exp() - t.constant(1),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "log": log,
    "log2": lambda t: log(t) / log(t.constant(2)),
    "log1p": lambda t: log(t.constant(1) + t),
    "sigmoid": sigmoid,
    "tanh": lambda t: t.constant(2) * function("sigmoid", t.constant(2) * t),
    "swish": _swish,
    "gelu": _gelu,
    "geluerf": _geluerf,
    "erf": erf,
    "erfc": lambda t: t.constant(1) - erf(t),
    "sinh": lambda t: _hyperbolic(t, -1),
    "cosh": lambda t: _hyperbolic(t, 1),
    "tan": lambda t: function("sin", t) / function("cos", t),
    "acos": lambda t: t.constant(math.pi / 2) - function("asin", t),
}
_IN_PLACE = ("exp", "gelu", "geluerf", "swish")
for _name in _KNOWN:
    _unary(_name, _FUNCTIONS.get(_name) or (lambda t, name=_name: function(name, t)))  # type: ignore[misc]
for _name, _rule in _FUNCTIONS.items():
    _unary(_name, _rule)
for _name in _IN_PLACE:
    _unary(f"{_name}_", _FUNCTIONS[_name])

_SLOPES: dict[str, Callable[[Numbers], Numbers]] = {
    "sigmoid_grad": _slope_of_sigmoid,
    "swish_grad": lambda t: sigmoid(t) + t * _slope_of_sigmoid(t),
    "gelu_grad": _slope_of_gelu,
    "geluerf_grad": lambda t: normal(t) + t * normal_density(t),
    "tanh_grad": lambda y: y.constant(1) - y * y,
}


def _gradient(name: str, slope: Callable[[Numbers], Numbers]) -> None:
    exact(name)(lambda _, t, dy: dy * slope(t))


for _name, _rule in _SLOPES.items():
    _gradient(_name, _rule)


@exact("integer_pow")
def integer_pow(op: Exact, t: Numbers) -> Numbers:
    return t.power(np.asarray(op["exponent"]))


@exact("pow")
def _pow(_: Exact, t: Numbers, e: Numbers) -> Numbers:
    return power(t, e)


@exact("pow_grad_base")
def pow_grad_base(op: Exact, t: Numbers, e: Numbers) -> Numbers:
    zero = e.is_zero()
    return select(zero, op.number(0), e * power(t, e - op.number(1)))


@exact("pow_grad_exponent")
def pow_grad_exponent(op: Exact, t: Numbers, y: Numbers) -> Numbers:
    return select(t.is_zero(), op.number(0), y * log(t))


@exact("atan2", "fmod")
def of_two(op: Exact, a: Numbers, b: Numbers) -> Numbers:
    """A random function of two numbers."""
    one, other = a.random(f"{op.kind} 1"), b.random(f"{op.kind} 2")
    return (one + other).random(op.kind)


@exact("floor", "ceil", "trunc", "round", "increment_mod", "increment_mod_")
def whole_number(op: Exact, t: Numbers) -> Numbers:
    """Rounding to integers and remainders: true at small fractions, else a random function."""
    known = t.small()
    name = " ".join(
        [op.kind.rstrip("_"), *(f"{op[each]}" for each in ("half", "increment", "modulus") if op[each])]
    )
    found = t.random(name, limits=(-_INF, _INF))
    hit = ~np.isnan(known)
    if not hit.any():
        return found
    (rounded,) = op.run(np.where(hit, known, 0.0))
    return select(hit, Numbers.of(rounded, t.low), found)


@exact("cast")
def cast(op: Exact, t: Value) -> Value:
    """Casts between floats change nothing; integers become numbers; numbers become integers if they are small ones."""
    if not isinstance(t, Numbers):
        given: Array = t
        return Numbers.of(given.astype(np.int64) if given.dtype == bool else given, op.low)
    dtype = op.outputs[0].dtype
    if "float" in dtype:
        return t
    if dtype == "bool":
        defined(t)
        return ~t.is_zero()
    known = t.small()
    if np.isnan(known).any():
        raise UnsupportedError(f"a number becomes {dtype}, whose digits are not known")
    (found,) = op.run(known)
    return found
