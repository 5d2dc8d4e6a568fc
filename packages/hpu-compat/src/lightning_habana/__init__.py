"""Import paths of the archived `lightning-habana`, implemented by hpu-core and its peers.

Importing this package or one of its modules imports neither torch, Lightning nor the Gaudi bridge. Each name imports
its package on first use; if that is not installed, the error names the distribution to install.

Raises:
    ImportError: The real `lightning-habana` is installed as well.
"""

import hpu_core
from hpu_compat import _conflict, _lazy, _modules, _targets, autoload
from lightning_habana.__about__ import __version__

__all__ = ["HPU_AVAILABLE", "__version__", *_targets.TRAINER]  # noqa: PLE0604 - all are names.

_conflict.check()
_modules.install()
__getattr__, __dir__ = _lazy.lazy_getattr(
    __name__,
    _targets.TRAINER,
    computed={"HPU_AVAILABLE": lambda: hpu_core.is_available()},  # noqa: PLW0108 - the name imports a large module.
    submodules=_modules.submodules(),
)
autoload()
