"""The classes that the help of LightningCLI shows, and that its options take by name: those that have been loaded."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpu_core.registration import _connectors, plugins

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

_log = logging.getLogger(__name__)

_OWN = (
    "hpu_core.accelerator:HPUAccelerator",
    "hpu_core.checkpoint:HPUCheckpointIO",
    "hpu_core.strategy:SingleHPUStrategy",
)


def load_classes(framework: "FrameworkName") -> None:
    """Load the classes that can be passed to a Trainer, so that jsonargparse finds them among Lightning's subclasses.

    One that cannot be loaded is left out.

    Args:
        framework: Whose command line has been imported.
    """
    if _connectors.refusal(framework) is not None:
        return
    for target in (*_OWN, *_of_plugins()):
        _load(target)


def _load(target: str) -> None:
    try:
        plugins.load(target)
    except Exception:  # noqa: BLE001 - whatever it is, the program may have nothing to do with it.
        _log.debug("%s is not shown in the command line's help", target, exc_info=True)


def _of_plugins() -> Iterator[str]:
    for plugin in plugins.installed().values():
        offers = [*plugin.strategies.values(), *([plugin.precision] if plugin.precision else [])]
        yield from {offer.trainer for offer in offers if offer.trainer is not None}
        yield from plugin.profilers.values()
