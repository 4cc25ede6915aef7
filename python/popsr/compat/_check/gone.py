"""Modules and names that programs of some years ago import and that no longer exist, or never exist outside the SDK."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import sysconfig
import warnings

__all__ = ["gone_name", "is_found", "is_of_sdk", "removed_module"]

# Modules of the standard library, by the version of Python that no longer has them.
_REMOVED_MODULES = {
    name: version
    for version, names in {
        "3.8": "macpath",
        "3.9": "_dummy_thread dummy_threading",
        "3.10": "formatter parser symbol",
        "3.11": "binhex",
        "3.12": "asynchat asyncore distutils imp smtpd",
        "3.13": "aifc audioop cgi cgitb chunk crypt imghdr lib2to3 mailcap msilib nis nntplib ossaudiodev pipes "
        "sndhdr spwd sunau telnetlib uu xdrlib",
    }.items()
    for name in names.split()
}
# The SDK's modules and those that come with it, but for what popsr stands in for.
_OF_SDK = {
    name
    for names in (
        "poptorch poptorch_core poptorch_geometric poptorch_experimental_addons",
        "poplar poplin popnn popops poprand popsparse poputil popef model_runtime",
        "popart_core popxl_core poprithms poprt",
        "gcipuinfo gcprofile libpvti pva pvti",
        "ipu_tensorflow_addons ipu_utils poplar_executor",
    )
    for name in names.split()
}
_ABSTRACT = (
    "AsyncGenerator AsyncIterable AsyncIterator Awaitable ByteString Callable Collection Container Coroutine "
    "Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping MutableSequence "
    "MutableSet Reversible Sequence Set Sized ValuesView"
)
# Names that modules had, with what to write now. Looked up only where the module of today lacks them.
_REMOVED_NAMES = {
    **{f"collections.{name}": f"collections.abc.{name}" for name in _ABSTRACT.split()},
    "base64.decodestring": "base64.decodebytes",
    "base64.encodestring": "base64.encodebytes",
    "asyncio.coroutine": "async def",
    "cgi.escape": "html.escape",
    "configparser.SafeConfigParser": "configparser.ConfigParser",
    "fractions.gcd": "math.gcd",
    "importlib.find_loader": "importlib.util.find_spec",
    "inspect.formatargspec": "inspect.signature",
    "inspect.getargspec": "inspect.getfullargspec",
    "os.errno": "errno",
    "os.getcwdu": "os.getcwd",
    "pkgutil.ImpImporter": "importlib",
    "platform.dist": "platform.freedesktop_os_release",
    "platform.linux_distribution": "platform.freedesktop_os_release",
    "string.maketrans": "str.maketrans",
    "time.clock": "time.perf_counter",
    "typing.io": "typing",
    "unittest.makeSuite": "unittest.TestLoader",
    "xml.etree.cElementTree": "xml.etree.ElementTree",
    **{f"numpy.{name}": name for name in ("object", "str", "int", "float", "complex", "bool")},
    "numpy.Inf": "numpy.inf",
    "numpy.Infinity": "numpy.inf",
    "numpy.NINF": "-numpy.inf",
    "numpy.NaN": "numpy.nan",
    "numpy.PINF": "numpy.inf",
    "numpy.alltrue": "numpy.all",
    "numpy.asscalar": "ndarray.item",
    "numpy.cast": "numpy.asarray",
    "numpy.complex_": "numpy.complex128",
    "numpy.cumproduct": "numpy.cumprod",
    "numpy.find_common_type": "numpy.promote_types",
    "numpy.float_": "numpy.float64",
    "numpy.in1d": "numpy.isin",
    "numpy.infty": "numpy.inf",
    "numpy.issubclass_": "issubclass",
    "numpy.issubsctype": "numpy.issubdtype",
    "numpy.long": "int",
    "numpy.mat": "numpy.asmatrix",
    "numpy.msort": "numpy.sort",
    "numpy.product": "numpy.prod",
    "numpy.random.random_integers": "numpy.random.randint",
    "numpy.rank": "numpy.ndim",
    "numpy.round_": "numpy.round",
    "numpy.row_stack": "numpy.vstack",
    "numpy.sctypes": "numpy.dtype",
    "numpy.singlecomplex": "numpy.complex64",
    "numpy.sometrue": "numpy.any",
    "numpy.string_": "numpy.bytes_",
    "numpy.trapz": "numpy.trapezoid",
    "numpy.typeDict": "numpy.sctypeDict",
    "numpy.unicode": "str",
    "numpy.unicode_": "numpy.str_",
}


def removed_module(name: str) -> str | None:
    """The version of Python that removed a module of its library; None of all others."""
    root = name.partition(".")[0]
    return None if root in sys.stdlib_module_names else _REMOVED_MODULES.get(root)


def is_of_sdk(name: str) -> bool:
    """True for a module that comes with the SDK only."""
    root = name.partition(".")[0]
    return root in _OF_SDK or name == "tensorflow.python.ipu" or name.startswith("tensorflow.python.ipu.")


@functools.cache
def is_found(root: str) -> bool:
    """True if a package of this name is installed, or in the folder where the command runs. Nothing is imported."""
    if root in sys.stdlib_module_names or root in sys.modules:
        return True
    try:
        return importlib.util.find_spec(root) is not None
    except (ImportError, ValueError):
        return False


@functools.cache
def gone_name(path: str) -> str | None:
    """The replacement of a name that its module no longer has; None of a name that is there, or not known."""
    instead = _REMOVED_NAMES.get(path)
    if instead is None:
        return None
    parent, _, name = path.rpartition(".")
    if not _is_safe(parent.partition(".")[0]):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return None if hasattr(importlib.import_module(parent), name) else instead


def _is_safe(root: str) -> bool:
    """True of a loaded module and of the standard library: a file of the program's must not be imported instead."""
    if root in sys.modules:
        return True
    spec = importlib.util.find_spec(root) if root in sys.stdlib_module_names else None
    return spec is not None and str(spec.origin).startswith(
        (sysconfig.get_path("stdlib"), "frozen", "built-in")
    )
