"""Package of `resnet_media_pipe`."""

from hpu_compat import _lazy

__getattr__, __dir__ = _lazy.lazy_getattr(__name__)
