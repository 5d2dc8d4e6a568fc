"""Cards as a loaded bridge counts them. Asks only what the bridge answers without opening a card."""

import functools
import importlib
from typing import Protocol

from hpu_core import bridge as _hpu_core_bridge
from hpu_core.discovery import _generation
from hpu_core.discovery._device import OPERATIONAL, Finding, HPUDevice, with_memory_of_generation

_PLACE = "the Gaudi PyTorch bridge (habana_frameworks)"


class Bridge(Protocol):
    """What discovery asks of `hpu_core.bridge`."""

    def is_loaded(self) -> bool:
        """Tell whether this process has imported the bridge."""

    def is_simulated(self) -> bool:
        """Tell whether the loaded bridge is the simulator."""

    def device_count(self) -> int:
        """Return how many cards the driver shows."""

    def generation(self) -> str:
        """Return the generation of the cards."""


@functools.cache
def import_torch() -> str | None:
    """Import torch if nobody has yet, so that a bridge that loads itself is loaded; return what went wrong, if so.

    From 2.5 on, torch loads its back-ends (the entry points `torch.backends`, of which the bridge has one in eager
    mode, and the simulator) while it is imported. Before that, nobody can tell whether this process will have a bridge,
    and discovery would answer differently depending on what the program happened to import first.

    A torch that is missing, or that a broken back-end keeps from being imported, is no reason to fail here: sysfs and
    the tools still know the cards, and the next `import torch` says what is wrong. Tried once per process, since a
    failed import of torch is slow and cannot be repeated safely.
    """
    try:
        importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - a back-end's entry point may raise anything through torch's import.
        return f"{type(error).__name__}: {error}"
    return None


def find(bridge: Bridge | None = None) -> Finding:
    """List the cards that the bridge counts, if this process has loaded it.

    A card counts as operational because the bridge offers it; which module or PCI device it is, the bridge tells only
    once a card is open.

    Args:
        bridge: The seam to ask. `hpu_core.bridge` when left out, and then torch is imported first.
    """
    if bridge is None:
        import_torch()
        bridge = _hpu_core_bridge
    if not bridge.is_loaded():
        return Finding(source="bridge", place=_PLACE, found="this process has not loaded it")
    simulated = bridge.is_simulated()
    count = bridge.device_count()
    if count < 1:
        return Finding(source="bridge", place=_PLACE, found="it is loaded and sees no card")
    generation = _generation_of(bridge)
    devices = tuple(
        with_memory_of_generation(
            HPUDevice(index=index, generation=generation, status=OPERATIONAL, simulated=simulated, source="bridge")
        )
        for index in range(count)
    )
    found = f"it counts {count} {'simulated ' if simulated else ''}card{'s' if count > 1 else ''}"
    return Finding(source="bridge", place=_PLACE, found=found, devices=devices)


def _generation_of(bridge: Bridge) -> _generation.Generation | None:
    try:
        return _generation.from_name(bridge.generation())
    except Exception:  # noqa: BLE001 - a private call of the bridge's; a count without a generation is still a count.
        return None
