"""Loaders of data."""

from hpu_compat import _lazy

__getattr__, __dir__ = _lazy.fetching(__name__, {}, (), submodules=("resnet_media_pipe",))
