"""Package of `fp8`."""

from hpu_compat import _lazy

__getattr__, __dir__ = _lazy.lazy_getattr(__name__)
