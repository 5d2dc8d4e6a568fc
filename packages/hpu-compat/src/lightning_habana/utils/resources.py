"""Device and software information of the archived package. Nothing here opens a device."""

import json
from importlib import util
from pathlib import Path
from typing import Any, Final

import hpu_core
from hpu_core import bridge
from hpu_core.lazy_exports import lazy_attributes

__all__ = [
    "device_count",
    "get_device_name_from_backend",
    "get_device_name_from_hlsmi",
    "get_device_stats",
    "get_hpu_synapse_version",
    "is_fp8_available",
    "is_fp16_available",
    "modify_fp8_json",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "_HABANA_FRAMEWORK_AVAILABLE": bridge.is_installed,
        "_INTEL_NEURAL_COMPRESSOR_AVAILABLE": lambda: util.find_spec("neural_compressor") is not None,
    },
)

_UNKNOWN_RELEASE: Final = "0.0.0"
_UNKNOWN_GENERATION: Final = "GAUDI"


def get_hpu_synapse_version() -> str:
    """Return the SynapseAI release, such as "1.24.1"; "0.0.0" if none is installed."""
    version = hpu_core.synapse_version()
    return _UNKNOWN_RELEASE if version is None else ".".join(map(str, version.release[:3]))


def get_device_name_from_backend() -> str:
    """Return the Gaudi generation, such as "GAUDI2"; "GAUDI" if unknown.

    Unlike the archived package, this does not open a device.
    """
    return hpu_core.device_name() or _UNKNOWN_GENERATION


get_device_name_from_hlsmi = get_device_name_from_backend


def get_device_stats(device: object) -> dict[str, Any]:  # noqa: ARG001 - each process has one device.
    """Return the bridge's memory statistics, which are empty if this process has not opened a device."""
    return dict(bridge.memory_stats()) if bridge.is_open() else {}


def device_count() -> int:
    """Return the number of devices that this process may use; without any it is 0, where the archived package had 8."""
    return hpu_core.device_count()


def is_fp8_available() -> tuple[bool, str]:
    """Return whether the devices support fp8, and the reason if not.

    Raises:
        OSError: The Gaudi bridge is not installed.
    """
    _check_bridge()
    return hpu_core.HPUAccelerator.is_fp8_available()


def is_fp16_available() -> tuple[bool, str]:
    """Return whether the devices support float16, and the reason if not.

    Raises:
        OSError: The Gaudi bridge is not installed.
    """
    _check_bridge()
    if bridge.is_fp16_supported():
        return True, ""
    return False, "float16 needs Gaudi 2 or newer, and the cards are first-generation Gaudi"


def modify_fp8_json(file_path: str, patch: dict[str, Any]) -> None:
    """Set entries of a file that contains a JSON object."""
    path = Path(file_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **patch}), encoding="utf-8")


def _check_bridge() -> None:
    if not bridge.is_installed():
        raise OSError(
            "the Gaudi PyTorch bridge (`habana_frameworks`) is not installed: on a Gaudi machine use Intel's PyTorch "
            "image, elsewhere run the program with `hpu-sim run`"
        )
