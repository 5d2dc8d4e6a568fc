"""The accelerator that stands for Gaudi cards in Lightning."""

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import bridge, discovery, frameworks, registration, telemetry
from hpu_core._lightning import Accelerator, MisconfigurationException

if TYPE_CHECKING:
    from lightning.fabric.accelerators.registry import _AcceleratorRegistry
    from lightning.fabric.utilities.types import _DEVICE


class _NotAnHPUError(MisconfigurationException, ValueError):
    """The strategy's device is no HPU: MisconfigurationException for the Trainer's users, ValueError for Fabric's."""


class HPUAccelerator(Accelerator):
    """Trains on Intel Gaudi cards: `Trainer(accelerator=HPUAccelerator(), devices=1)`, or by its name, "hpu".

    No card is opened before `setup_device`, which each training process calls for itself.
    """

    def __init__(self) -> None:
        super().__init__()
        registration.register_if_enabled()

    def setup_device(self, device: torch.device) -> None:
        """Open the card for this process.

        Args:
            device: The strategy's root device.

        Raises:
            MisconfigurationException: `device` is not an HPU; the error is a ValueError, too.
            ModuleNotFoundError: The Gaudi bridge is not installed.
            RuntimeError: No card could be opened.
        """
        if device.type != "hpu":
            raise _NotAnHPUError(
                f"HPUAccelerator needs a strategy whose device is 'hpu', and this one's is {str(device)!r}: pass "
                "`strategy=hpu_core.SingleHPUStrategy()` to the Trainer"
            )
        bridge.open_device()

    def teardown(self) -> None:
        """Do nothing: the card stays with the process until it ends, and the strategy has emptied it."""

    def get_device_stats(self, device: "_DEVICE") -> dict[str, Any]:  # noqa: ARG002 - a process has one card.
        """Return the card's memory figures and, with pyhlml, its power, temperature and utilisation.

        Args:
            device: Lightning's argument. A process has one card only, and its figures are returned.

        Returns:
            Numbers by name, see `hpu_core.telemetry.device_stats`; empty before `setup_device`.
        """
        return dict(telemetry.device_stats())

    @staticmethod
    def parse_devices(devices: Any) -> int:
        """Return the number of cards that the Trainer's `devices` asks for, see `hpu_core.parse_devices`.

        Raises:
            MisconfigurationException: `devices` cannot be honoured; the text names the value and the rule.
        """
        try:
            return discovery.parse_devices(devices)
        except (TypeError, ValueError, RuntimeError) as error:
            raise MisconfigurationException(str(error)) from error

    @staticmethod
    def get_parallel_devices(devices: Any) -> list[torch.device]:
        """Return one `torch.device("hpu")`, without an index, for each card.

        Every process sees its one card as "hpu"; which card that is, is decided by module id when it is opened.

        Args:
            devices: What `parse_devices` returned, or a collection with one entry per card.
        """
        count = len(devices) if isinstance(devices, Sized) else int(devices)
        return [torch.device("hpu")] * count

    @staticmethod
    def auto_device_count() -> int:
        """Return how many cards `devices="auto"` stands for, see `hpu_core.auto_device_count`.

        Raises:
            RuntimeError: There is none; the text says where it was looked for.
        """
        return discovery.auto_device_count()

    @staticmethod
    def is_available() -> bool:
        """Tell whether a card can be used. Opens no card and never raises."""
        return discovery.is_available()

    @staticmethod
    def name() -> str:
        """Return "hpu"."""
        return "hpu"

    @staticmethod
    def get_device_name() -> str | None:
        """Return the generation of the cards, "GAUDI", "GAUDI2" or "GAUDI3"; None when unknown. Opens no card."""
        return discovery.device_name()

    @staticmethod
    def is_fp8_available() -> tuple[bool, str]:
        """Tell whether the cards compute in fp8, and if not, why not. Opens no card."""
        generation = discovery.device_name()
        if generation is None:
            return False, "there is no Gaudi card whose generation is known; `hpu-info` shows where one was looked for"
        if generation == "GAUDI":
            return False, "fp8 needs a Gaudi 2 or newer, and the cards are of the first generation"
        return True, ""

    @staticmethod
    def is_lazy() -> bool:
        """Tell whether the bridge is in lazy mode, see `hpu_core.is_lazy`."""
        return bridge.is_lazy()

    @classmethod
    def register_accelerators(cls, accelerator_registry: "_AcceleratorRegistry") -> None:
        """Register the accelerator as "hpu", in place of the one that Lightning 2.0 brings along.

        Args:
            accelerator_registry: Lightning's `AcceleratorRegistry`.
        """
        accelerator_registry.register(cls.name(), cls, description=cls.__name__, override=True)

    def __repr__(self) -> str:
        return frameworks.describe(self)
