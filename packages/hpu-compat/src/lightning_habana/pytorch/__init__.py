"""Import paths of the archived package for the Trainer."""

from typing import TYPE_CHECKING

from hpu_compat import _lazy, _targets
from lightning_habana.pytorch import accelerator, datamodule, plugins, profiler, strategies

if TYPE_CHECKING:
    from lightning_habana.pytorch.accelerator import *  # noqa: F403 - their `__all__`.
    from lightning_habana.pytorch.datamodule import *  # noqa: F403 - as above.
    from lightning_habana.pytorch.plugins import *  # noqa: F403 - as above.
    from lightning_habana.pytorch.profiler import *  # noqa: F403 - as above.
    from lightning_habana.pytorch.strategies import *  # noqa: F403 - as above.

__all__: list[str] = []
__all__ += accelerator.__all__
__all__ += datamodule.__all__
__all__ += plugins.__all__
__all__ += profiler.__all__
__all__ += strategies.__all__

__getattr__, __dir__ = _lazy.lazy_getattr(__name__, _targets.TRAINER, __all__)
