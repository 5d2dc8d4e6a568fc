"""What the archived package found out about cards and software. Nothing here opens a card."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hpu_compat import _lazy

if TYPE_CHECKING:
    _HABANA_FRAMEWORK_AVAILABLE: bool
    _HABANA_QUANTIZATION_TOOLKIT_AVAILABLE: bool
    _INTEL_NEURAL_COMPRESSOR_AVAILABLE: bool

_UNKNOWN_RELEASE: Final = "0.0.0"
_UNKNOWN_GENERATION: Final = "GAUDI"


def get_hpu_synapse_version() -> str:
    """Return the SynapseAI release, such as "1.24.1"; "0.0.0" where there is none."""
    from hpu_core import synapse_version

    version = synapse_version()
    return _UNKNOWN_RELEASE if version is None else ".".join(map(str, version.release[:3]))


def get_device_name_from_backend() -> str:
    """Return the generation of the cards, such as "GAUDI2"; "GAUDI" where it is not known.

    The archived package opened a card for it.
    """
    from hpu_core import device_name

    return device_name() or _UNKNOWN_GENERATION


def get_device_name_from_hlsmi() -> str:
    """Return what `get_device_name_from_backend` does."""
    return get_device_name_from_backend()


def get_device_stats(device: object) -> dict[str, Any]:  # noqa: ARG001 - a process has one card.
    """Return the card's figures by name, see `hpu_core.telemetry.device_stats`; nothing where none is open.

    Args:
        device: The archived package's argument. A process has one card only, and its figures are returned.
    """
    from hpu_core import telemetry

    return dict(telemetry.device_stats())


def device_count() -> int:
    """Return how many cards this process may use. Without a card it is 0, and the archived package's answer was 8."""
    from hpu_core import device_count as count

    return count()


def is_fp8_available() -> tuple[bool, str]:
    """Tell whether the cards compute in fp8, and if not, why not.

    Raises:
        OSError: The Gaudi bridge is not installed.
    """
    from hpu_core import HPUAccelerator

    _check_bridge()
    return HPUAccelerator.is_fp8_available()


def is_fp16_available() -> tuple[bool, str]:
    """Tell whether the cards compute in float16, and if not, why not.

    Raises:
        OSError: The Gaudi bridge is not installed.
    """
    from hpu_core import bridge

    _check_bridge()
    if bridge.is_fp16_supported():
        return True, ""
    return False, "float16 needs a Gaudi 2 or newer, and the cards are of the first generation"


def modify_fp8_json(file_path: str, patch: dict[str, Any]) -> None:
    """Set entries of a JSON file.

    Args:
        file_path: The file, which holds an object.
        patch: The entries.
    """
    path = Path(file_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **patch}), encoding="utf-8")


def _parse_hpus(devices: Any) -> int | None:
    """Return how many cards a Trainer's `devices` asks for, None for None.

    Raises:
        MisconfigurationException: `devices` cannot be honoured.
    """
    from hpu_core import HPUAccelerator

    return None if devices is None else HPUAccelerator.parse_devices(devices)


def _parse_hpu_synapse_versions(line: str) -> tuple[str, str]:
    """Return release and firmware from what `hl-smi -v` prints.

    >>> _parse_hpu_synapse_versions("Habanalabs hl-smi/hlml version hl-1.22.0-fw-60.1.0.1 (Jul 24 2026 - 08:15:30)")
    ('1.22.0', '60.1.0.1')
    >>> _parse_hpu_synapse_versions("command not found")
    ('', '')
    """
    found = re.search(r"hl-(?P<release>[\d.]+)-fw-(?P<firmware>[\d.]+)", line)
    return (found["release"], found["firmware"]) if found else ("", "")


def _parse_for_device_name(line: str) -> str:
    """Return the generation from what `hl-smi -L` prints.

    >>> _parse_for_device_name("Firmware [SPI] Version : Preboot version hl-gaudi2-1.17.0-fw-51.2.0-sec-9")
    'GAUDI2'
    >>> _parse_for_device_name("hl-gaudi-1.11.0-fw-45.1.1-sec-7"), _parse_for_device_name("anything else")
    ('GAUDI', 'GAUDI')
    """
    found = re.search(r"hl-gaudi(\d?)", line)
    return _UNKNOWN_GENERATION + (found[1] if found else "")


def _is_bridge_installed() -> bool:
    from hpu_core import bridge

    return bridge.is_installed()


def _check_bridge() -> None:
    if not _is_bridge_installed():
        raise OSError(
            "the Gaudi PyTorch bridge (`habana_frameworks`) is not installed: on a Gaudi machine use Intel's PyTorch "
            "image, elsewhere start the program with `hpu-sim run`"
        )


__getattr__, __dir__ = _lazy.fetching(
    __name__,
    {},
    (),
    found_out={
        "_HABANA_FRAMEWORK_AVAILABLE": _is_bridge_installed,
        "_HABANA_QUANTIZATION_TOOLKIT_AVAILABLE": lambda: _lazy.is_installed("habana_quantization_toolkit"),
        "_INTEL_NEURAL_COMPRESSOR_AVAILABLE": lambda: _lazy.is_installed("neural_compressor"),
    },
)
