"""Import paths of the archived `lightning-habana`, implemented by hpu-core and its peers.

Importing this package or one of its modules imports neither torch, Lightning nor the Gaudi bridge. Each name imports
its package on first use; if that is not installed, the error names the distribution to install.

Raises:
    ImportError: The real `lightning-habana` is installed as well.
"""

from hpu_compat import _finder, _names, autoload
from lightning_habana.__about__ import __version__

__all__ = ["HPU_AVAILABLE", "__version__", *_names.exports("pytorch")]  # noqa: PLE0604 - all are names.

_finder.check_conflict()
_finder.finder.install()
__getattr__, __dir__ = _finder.attributes(
    __name__, {"HPU_AVAILABLE": "hpu_compat._values:AVAILABLE", **_names.exports("pytorch")}
)
autoload()
