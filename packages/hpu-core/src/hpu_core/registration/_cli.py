"""Classes that LightningCLI lists in its help and accepts by name, which are those that are imported."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpu_core import frameworks, plugins
from hpu_core.registration import _registries

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)


def load_classes(framework: "FrameworkName") -> None:
    """Import every class that a Trainer accepts, because jsonargparse searches Lightning's loaded subclasses.

    A class that cannot be imported is skipped.

    Args:
        framework: The framework whose command line is imported.
    """
    if frameworks.import_error(framework) is not None:
        return
    for path in _paths():
        _load(path)


def _load(path: str) -> None:
    try:
        plugins.load(path)
    except Exception:  # noqa: BLE001 - the program may not use it.
        _log.debug("LightningCLI does not list %s, which cannot be imported", path, exc_info=True)


def _paths() -> Iterator[str]:
    yield from (_registries.ACCELERATOR, "hpu_core.checkpoint:HPUCheckpointIO")
    yield from filter(None, [_registries.STRATEGY.trainer])
    for plugin in plugins.installed().values():
        classes = [*plugin.strategies.values(), *([plugin.precision] if plugin.precision else [])]
        yield from {paths.trainer for paths in classes if paths.trainer is not None}
        yield from plugin.profilers.values()
