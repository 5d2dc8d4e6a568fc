"""Import paths of the archived package for Fabric."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets
from lightning_habana.fabric import accelerator, plugins, strategies

if TYPE_CHECKING:
    from lightning_habana.fabric.accelerator import *  # noqa: F403 - their `__all__`.
    from lightning_habana.fabric.plugins import *  # noqa: F403 - as above.
    from lightning_habana.fabric.strategies import *  # noqa: F403 - as above.

__all__: list[str] = []
__all__ += accelerator.__all__
__all__ += plugins.__all__
__all__ += strategies.__all__

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.FABRIC, __all__)
