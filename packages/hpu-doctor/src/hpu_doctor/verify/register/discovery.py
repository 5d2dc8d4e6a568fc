"""What a machine tells about its cards without opening one: sysfs, device nodes, `hl-smi` and pyhlml."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hpu_core import bridge, discovery
from hpu_doctor.verify.assumption import AtLeast, Matches, NotTriedError, Subject
from hpu_doctor.verify.register._tools import attach, opens_card

SUBJECT = Subject(
    "Discovery without opening a card",
    simulator="hardware",
    reason="a simulated machine has no driver and no tools of the vendor",
)
assume = SUBJECT.assume

SYSFS = Path("/sys/class/accel")
DEV = Path("/dev/accel")

_KERNEL = "Linux drivers/accel/habanalabs/common/sysfs.c and its ABI document"
_LOG = "hl-smi of SynapseAI 1.12.1 and 1.18, published logs"
_HLML = "habana_pyhlml-1.24.2.481, the package's source"


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


def _hl_smi(*arguments: str) -> str:
    path = shutil.which("hl-smi")
    if path is None:
        raise NotTriedError("hl-smi is not on PATH")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603 - fixed arguments.
    if done.returncode:
        raise NotTriedError(f"hl-smi {' '.join(arguments)} failed with exit code {done.returncode}")
    return done.stdout


def _hlml() -> Any:
    try:
        return importlib.import_module("pyhlml")
    except ImportError as error:
        raise NotTriedError(f"pyhlml cannot be imported: {error}") from error


@assume(
    source=_KERNEL,
    expected=True,
    means={"hpu-core": "the number of cards would come from another source, or be wrong."},
)
def sysfs_lists_all_cards() -> object:
    """/sys/class/accel lists as many cards as the bridge counts."""
    return len(_cards()) == bridge.device_count()


@assume(
    source=_KERNEL,
    expected=Matches(r"GAUDI( SEC|2[BCD]?|3.*|2)?"),
    means={"hpu-core": "the generation of a card would be unknown until the bridge is loaded."},
)
def sysfs_names_the_generation() -> object:
    """The attribute device_type names the generation."""
    return _read(_cards()[0] / "device_type")


@assume(
    source=_KERNEL,
    expected="Operational",
    means={"hpu-core": "every card would count as unusable."},
)
def sysfs_status_is_operational() -> object:
    """The attribute status of a card that works is "Operational"."""
    return next((status for card in _cards() if (status := _read(card / "status")) != "Operational"), "Operational")


@assume(
    source=_KERNEL + ", since November 2023",
    expected=True,
    means={"hpu-core": "cards could not be matched with HABANA_VISIBLE_MODULES without hl-smi."},
)
def sysfs_has_module_ids() -> object:
    """The attribute module_id is a number of its own for each card."""
    modules = [_read(card / "module_id") for card in _cards()]
    return all(module.isdecimal() for module in modules) and len(set(modules)) == len(modules)


@assume(
    source=_KERNEL,
    expected=Matches(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"),
    means={"hpu-core": "sysfs and hl-smi could not be matched."},
)
def sysfs_has_bus_addresses() -> object:
    """The attribute pci_addr is a PCI address with a domain."""
    return _read(_cards()[0] / "pci_addr")


@assume(
    source=_KERNEL,
    expected=True,
    means={"hpu-doctor": "processes that hold a card could not be named."},
)
def cards_have_nodes() -> object:
    """Each card of sysfs has a node in /dev/accel."""
    _cards()
    names = {folder.name for folder in SYSFS.glob("accel[0-9]*")}
    return bool(names) and names <= {node.name for node in DEV.glob("accel[0-9]*")}


@assume(
    source=_LOG,
    expected=Matches(r".*hl-[\d.]+.*fw-[\d.]+.*"),
    means={"hpu-core": "the release would be unknown where the bridge is not installed."},
)
def hl_smi_tells_its_version() -> object:
    """`hl-smi -v` has the versions of the tool and the firmware after "hl-" and "fw-"."""
    text = _hl_smi("-v").strip()
    attach("hl-smi-v.txt", text)
    return text


@assume(
    source=_LOG + "; optimum-habana parses line 2",
    expected=["HL-SMI Version", "Driver Version"],
    means={"hpu-sim": "programs that parse the table by lines would fail."},
)
def hl_smi_table_begins_with_versions() -> object:
    """The second and third line of `hl-smi` have the versions of tool and driver."""
    lines = _hl_smi().splitlines()[1:3]
    return [found[0] if (found := re.findall(r"HL-SMI Version|Driver Version", line)) else line for line in lines]


@assume(
    source=_LOG,
    expected=["AIP UUID", "Bus Id", "Driver Version", "Module ID", "Product Name"],
    means={"hpu-core": "discovery by hl-smi would find no card."},
)
def hl_smi_log_has_fields() -> object:
    """`hl-smi -L` has product name, module id, UUID and bus id of each card."""
    text = _hl_smi("-L")
    attach("hl-smi-L.txt", re.sub(r"(?m)^(.*(?:serial|uuid)[^:\n]*:).*$", r"\1 <serial>", text, flags=re.IGNORECASE))
    return sorted(
        name for name in ("AIP UUID", "Bus Id", "Driver Version", "Module ID", "Product Name") if name in text
    )


@assume(
    source=_LOG,
    expected=Matches(r"HL-(205|225|288|325|338)\w*"),
    means={"hpu-core": "the generation would be unknown where only hl-smi is there."},
)
def product_names() -> object:
    """The product name of `hl-smi -L` is HL- and a known number."""
    found = re.search(r"Product Name\s*:\s*(\S+)", _hl_smi("-L"))
    return found[1] if found else "none"


@assume(
    source=_LOG + "; milabench parses it",
    expected=[True, AtLeast(1)],
    means={"hpu-doctor": "cards in use would not be recognized by their memory."},
)
def hl_smi_queries_fields() -> object:
    """`hl-smi -Q module_id,memory.used,memory.total` gives three numbers for each card."""
    lines = _hl_smi("-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits").strip().splitlines()
    numbers = [[part.strip() for part in line.split(",")] for line in lines]
    return [all(len(row) == 3 and all(part.isdecimal() for part in row) for row in numbers), len(numbers)]  # noqa: PLR2004 - fields.


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
    source=_HLML,
    expected=[True, "bytes"],
    means={"hpu-core": "discovery by pyhlml would find no card."},
)
def pyhlml_lists_cards() -> object:
    """pyhlml counts as many cards as the bridge, and returns names in bytes."""
    hlml = _hlml()
    hlml.hlmlInit()
    try:
        handle = hlml.hlmlDeviceGetHandleByIndex(0)
        return [hlml.hlmlDeviceGetCount() == bridge.device_count(), type(hlml.hlmlDeviceGetName(handle)).__name__]
    finally:
        hlml.hlmlShutdown()


@assume(
    source=_HLML,
    expected=AtLeast(32 << 30),
    means={"hpu-core": "`telemetry` would report memory in a wrong unit."},
)
def pyhlml_memory_is_in_bytes() -> object:
    """pyhlml reports the memory of a card in bytes."""
    hlml = _hlml()
    hlml.hlmlInit()
    try:
        return int(hlml.hlmlDeviceGetMemoryInfo(hlml.hlmlDeviceGetHandleByIndex(0)).total)
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
