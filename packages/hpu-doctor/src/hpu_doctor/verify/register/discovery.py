"""What a machine tells about its cards without opening one: sysfs and device nodes."""

from pathlib import Path

from hpu_core import bridge
from hpu_doctor.verify.assumption import SkippedError, Subject, matches

SUBJECT = Subject(
    "Discovery without opening a card",
    reason="a simulated machine has no driver",
)

SYSFS = Path("/sys/class/accel")
DEV = Path("/dev/accel")


def _devices() -> list[Path]:
    """Return the folders of the vendor's cards in sysfs."""
    found = [folder / "device" for folder in sorted(SYSFS.glob("accel[0-9]*"))]
    found = [folder for folder in found if _read(folder / "vendor") in {"0x1da3", ""} and (folder / "status").exists()]
    if not found:
        raise SkippedError("sysfs lists no card of the vendor")
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _attribute(name: str) -> list[str]:
    return [_read(card / name) for card in _devices()]


def _has_nodes() -> bool:
    _devices()
    names = {folder.name for folder in SYSFS.glob("accel[0-9]*")}
    return bool(names) and names <= {node.name for node in DEV.glob("accel[0-9]*")}


def _has_module_ids() -> bool:
    modules = _attribute("module_id")
    return all(each.isdecimal() for each in modules) and len(set(modules)) == len(modules)


SUBJECT.table(
    "sysfs-describes-cards",
    "/sys/class/accel lists each card with its status, generation, PCI address and module, and /dev/accel its node.",
    {
        "as many as the bridge counts": (True, lambda: len(_devices()) == bridge.device_count()),
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
