"""What a machine tells about its cards without opening one: sysfs, device nodes, `hl-smi` and pyhlml."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hpu_core import bridge, discovery
from hpu_doctor.verify.assumption import NotTriedError, Subject, at_least, matches
from hpu_doctor.verify.register._tools import attach, opens_card

SUBJECT = Subject(
    "Discovery without opening a card",
    simulator="hardware",
    reason="a simulated machine has no driver and no tools of the vendor",
)
assume = SUBJECT.assume

SYSFS = Path("/sys/class/accel")
DEV = Path("/dev/accel")

_LOG = "hl-smi of SynapseAI 1.12.1 and 1.18, published logs"
_FIELDS = ("AIP UUID", "Bus Id", "Driver Version", "Module ID", "Product Name")


def _cards() -> list[Path]:
    """Return the folders of the vendor's cards in sysfs."""
    found = [folder / "device" for folder in sorted(SYSFS.glob("accel[0-9]*"))]
    found = [folder for folder in found if _read(folder / "vendor") in {"0x1da3", ""} and (folder / "status").exists()]
    if not found:
        raise NotTriedError("sysfs lists no card of the vendor")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _attribute(name: str) -> list[str]:
    return [_read(card / name) for card in _cards()]


def _hl_smi(*arguments: str) -> str:
    path = shutil.which("hl-smi")
    if path is None:
        raise NotTriedError("hl-smi is not on PATH")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - fixed arguments.
    if done.returncode:
        raise NotTriedError(f"hl-smi {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout


def _has_nodes() -> bool:
    _cards()
    names = {folder.name for folder in SYSFS.glob("accel[0-9]*")}
    return bool(names) and names <= {node.name for node in DEV.glob("accel[0-9]*")}


def _has_module_ids() -> bool:
    modules = _attribute("module_id")
    return all(each.isdecimal() for each in modules) and len(set(modules)) == len(modules)


SUBJECT.table(
    "sysfs-describes-cards",
    "/sys/class/accel lists each card with its status, generation, PCI address and module, and /dev/accel its node.",
    {
        "as many as the bridge counts": (True, lambda: len(_cards()) == bridge.device_count()),
        "status": (
            "Operational",
            lambda: next((each for each in _attribute("status") if each != "Operational"), "Operational"),
        ),
        "device_type": (matches(r"GAUDI( SEC|2[BCD]?|3.*|2)?"), lambda: _attribute("device_type")[0]),
        "pci_addr": (matches(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"), lambda: _attribute("pci_addr")[0]),
        "a module_id for each (since November 2023)": (True, _has_module_ids),
        "nodes": (True, _has_nodes),
    },
    source="Linux drivers/accel/habanalabs/common/sysfs.c and its ABI document",
    means={
        "hpu-core": "number, generation or modules of the cards would be wrong, or come from another source.",
        "hpu-doctor": "processes that hold a card could not be named.",
    },
)


def _version() -> str:
    text = _hl_smi("-v").strip()
    attach("hl-smi-v.txt", text)
    return text


def _fields() -> list[str]:
    text = _hl_smi("-L")
    attach("hl-smi-L.txt", re.sub(r"(?m)^(.*(?:serial|uuid)[^:\n]*:).*$", r"\1 <serial>", text, flags=re.IGNORECASE))
    return [name for name in _FIELDS if name in text]


def _product() -> str:
    found = re.search(r"Product Name\s*:\s*(\S+)", _hl_smi("-L"))
    return found[1] if found else "none"


def _query() -> list[object]:
    lines = _hl_smi("-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits").strip().splitlines()
    numbers = [[part.strip() for part in line.split(",")] for line in lines]
    return [all(len(row) == 3 and all(part.isdecimal() for part in row) for row in numbers), len(numbers)]  # noqa: PLR2004 - fields.


SUBJECT.table(
    "hl-smi-describes-cards",
    "`hl-smi -v` has the versions of tool and firmware, `-L` five fields of each card, of which the product is HL- and "
    "a number, and `-Q` three numbers of each card.",
    {
        "-v": (matches(r".*hl-[\d.]+.*fw-[\d.]+.*"), _version),
        "fields of -L": (list(_FIELDS), _fields),
        "product": (matches(r"HL-(205|225|288|325|338)\w*"), _product),
        "-Q": ([True, at_least(1)], _query),
    },
    source=_LOG + "; milabench parses them",
    means={
        "hpu-core": "discovery by hl-smi would find no card, or not know its generation or the release.",
        "hpu-doctor": "cards in use would not be recognized by their memory.",
    },
)


@assume(
    source=_LOG + ": runs beside jobs",
    expected=False,
    means={"hpu-core": "hl-smi would disturb a job that runs."},
)
def hl_smi_opens_no_card() -> object:
    """`hl-smi -L` leaves the card free: this process can open it while hl-smi has run."""
    opened = opens_card(lambda: _hl_smi("-L"))
    bridge.open_device()
    return opened


@assume(
    source="habana_pyhlml-1.24.2.481, the package's source",
    expected=[True, "bytes", at_least(32 << 30)],
    means={"hpu-core": "discovery by pyhlml would find no card, or `telemetry` report memory in a wrong unit."},
)
def pyhlml_lists_cards() -> object:
    """pyhlml counts as many cards as the bridge, and returns names and the size of memory in bytes."""
    try:
        hlml: Any = importlib.import_module("pyhlml")
    except ImportError as error:
        raise NotTriedError(f"pyhlml cannot be imported: {error}") from error
    hlml.hlmlInit()
    try:
        card = hlml.hlmlDeviceGetHandleByIndex(0)
        name, memory = hlml.hlmlDeviceGetName(card), hlml.hlmlDeviceGetMemoryInfo(card)
        return [hlml.hlmlDeviceGetCount() == bridge.device_count(), type(name).__name__, int(memory.total)]
    finally:
        hlml.hlmlShutdown()


@assume(
    source="Intel's driver reports its release; driver and user space of one release belong together",
    expected=True,
    means={"hpu-doctor": "a driver of another release than the user space would go unnoticed."},
)
def driver_version_is_known() -> object:
    """A source of discovery has the driver's version."""
    found = discovery.devices()
    if not found:
        raise NotTriedError("no card was found")
    return any(device.driver_version for device in found)
