"""Interface of the device for dynamo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from habana_frameworks.torch import hpu

if TYPE_CHECKING:
    from collections.abc import Callable


def register() -> None:
    """Register the device in dynamo; do nothing with torch < 2.2, which has no device interfaces."""
    try:
        from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
    except ImportError:
        return

    class HpuInterface(DeviceInterface):
        """``torch.hpu`` under the names of dynamo."""

        device = hpu.device
        current_device = staticmethod(hpu.current_device)
        current_stream = staticmethod(hpu.current_stream)
        device_count = staticmethod(hpu.device_count)
        is_available = staticmethod(hpu.is_available)
        set_device = staticmethod(hpu.set_device)
        set_stream = staticmethod(hpu.set_stream)
        stream = staticmethod(hpu.stream)

        @staticmethod
        def synchronize(device: Any = None) -> None:
            """Wait for the device."""
            del device
            hpu.synchronize()

        @staticmethod
        def exchange_device(device: int) -> int:
            """Return the current device, which never changes."""
            del device
            return 0

        maybe_exchange_device = exchange_device

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            """Return the properties of the device as text."""
            return hpu.get_device_properties(device)

        @staticmethod
        def get_compute_capability(device: Any = None) -> Any:
            """Return the version of the driver as text."""
            return hpu.get_device_capability(device)

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            """Return whether the device supports bfloat16, as all do."""
            del including_emulation
            return bool(hpu.is_bf16_supported())

    # Not in the class body: torch <= 2.4 requires other base classes there.
    for name in ("Event", "Stream"):
        setattr(HpuInterface, name, getattr(hpu, name))
    register_interface: Callable[[str, type], None] = register_interface_for_device
    for name in ("hpu", "hpu:0"):
        register_interface(name, HpuInterface)
