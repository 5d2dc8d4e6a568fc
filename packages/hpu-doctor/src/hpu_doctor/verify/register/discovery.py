"""What a machine tells about its cards without opening one: sysfs, device nodes, `hl-smi` and pyhlml."""

import shutil
import subprocess
from pathlib import Path

from hpu_core import bridge
from hpu_doctor.verify.assumption import NotTriedError, Subject, at_least, matches
from hpu_doctor.verify.register._tools import attach

SUBJECT = Subject(
    "Discovery without opening a card",
    simulator="hardware",
    reason="a simulated machine has no driver and no tools of the vendor",
)

SYSFS = Path("/sys/class/accel")
DEV = Path("/dev/accel")


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


def _query() -> list[object]:
    path = shutil.which("hl-smi")
    if path is None:
        raise NotTriedError("hl-smi is not on PATH")
    query = [path, "-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - fixed arguments.
    if done.returncode:
        raise NotTriedError(f"hl-smi failed with exit code {done.returncode}")
    attach("hl-smi.txt", done.stdout)
    numbers = [[part.strip() for part in line.split(",")] for line in done.stdout.strip().splitlines()]
    return [all(len(row) == 3 and all(part.isdecimal() for part in row) for row in numbers), len(numbers)]  # noqa: PLR2004 - fields.


SUBJECT.add(
    "hl-smi-lists-memory",
    "`hl-smi -Q` prints three numbers of each card: its module, and its used and its whole memory in MiB.",
    _query,
    source="hl-smi of SynapseAI 1.12.1 and 1.18, published logs; milabench parses them",
    expected=[True, at_least(1)],
    means={
        "hpu-doctor": "cards in use would not be recognized by their memory.",
        "hpu-launch": "cards of other users' jobs would count as free.",
    },
)
