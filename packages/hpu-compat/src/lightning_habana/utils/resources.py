"""Device and software information of the archived package. Nothing here opens a device."""

import json
import re
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
        "_HABANA_QUANTIZATION_TOOLKIT_AVAILABLE": lambda: util.find_spec("habana_quantization_toolkit") is not None,
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
    """Return `hpu_core.telemetry.device_stats()`, which is empty if this process has not opened a device."""
    from hpu_core import telemetry

    return dict(telemetry.device_stats())


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


def _parse_hpus(devices: Any) -> int | None:
    """Return the number of devices for a Trainer's `devices`; None for None.

    Raises:
        MisconfigurationException: `devices` is invalid.
    """
    return None if devices is None else hpu_core.HPUAccelerator.parse_devices(devices)


def _parse_hpu_synapse_versions(line: str) -> tuple[str, str]:
    """Return release and firmware version from the output of `hl-smi -v`.

    >>> _parse_hpu_synapse_versions("Habanalabs hl-smi/hlml version hl-1.22.0-fw-60.1.0.1 (Jul 24 2026 - 08:15:30)")
    ('1.22.0', '60.1.0.1')
    >>> _parse_hpu_synapse_versions("command not found")
    ('', '')
    """
    found = re.search(r"hl-(?P<release>[\d.]+)-fw-(?P<firmware>[\d.]+)", line)
    return (found["release"], found["firmware"]) if found else ("", "")


def _parse_for_device_name(line: str) -> str:
    """Return the generation from the output of `hl-smi -L`.

    >>> _parse_for_device_name("Firmware [SPI] Version : Preboot version hl-gaudi2-1.17.0-fw-51.2.0-sec-9")
    'GAUDI2'
    >>> _parse_for_device_name("hl-gaudi-1.11.0-fw-45.1.1-sec-7"), _parse_for_device_name("anything else")
    ('GAUDI', 'GAUDI')
    """
    found = re.search(r"hl-gaudi(\d?)", line)
    return _UNKNOWN_GENERATION + (found[1] if found else "")


def _check_bridge() -> None:
    if not bridge.is_installed():
        raise OSError(
            "the Gaudi PyTorch bridge (`habana_frameworks`) is not installed: on a Gaudi machine use Intel's PyTorch "
            "image, elsewhere run the program with `hpu-sim run`"
        )
