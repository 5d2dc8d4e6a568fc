"""Tests of the parsers for hl-smi output."""

import re
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from hpu_core.discovery import Generation, HPUDevice, _hl_smi_text

_GIB = 1024**3

Text = Callable[[str], str]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gaudi1", (2, "GAUDI", 32 * _GIB, "1.18.0-ee698fb")),
        ("gaudi2", (8, "GAUDI2", 96 * _GIB, "1.12.1-cb7a7bc")),
        ("gaudi3", (2, "GAUDI3", 128 * _GIB, "1.24.1-1a2b3c4")),
    ],
)
def test_log_of_each_generation(hl_smi_text: Text, name: str, expected: tuple[int, str, int, str]) -> None:
    devices = _hl_smi_text.parse_log(hl_smi_text(f"hl-smi-L-{name}.txt"))

    assert devices is not None
    first = devices[0]
    assert (len(devices), first.generation, first.memory_bytes, first.driver_version) == expected


def test_all_fields_of_the_log(hl_smi_text: Text) -> None:
    """The module id differs from the index."""
    devices = _hl_smi_text.parse_log(hl_smi_text("hl-smi-L-gaudi2.txt"))

    assert devices is not None
    assert devices[1] == HPUDevice(
        index=1,
        module_id=7,
        pci_address="0000:1a:00.0",
        generation="GAUDI2",
        memory_bytes=96 * _GIB,
        status="Operational",
        driver_version="1.12.1-cb7a7bc",
        source="hl-smi",
    )


def test_status_of_the_log(hl_smi_text: Text) -> None:
    devices = _hl_smi_text.parse_log(hl_smi_text("hl-smi-L-gaudi3.txt"))

    assert [device.status for device in devices or ()] == ["Operational", "In reset"]


def test_log_without_devices() -> None:
    assert _hl_smi_text.parse_log("Driver Version : 1.18.0\nAttached AIPs : 0\n") == ()


@pytest.mark.parametrize(
    ("field", "line", "generation"),
    [
        ("Device Id", "Product Name                    : HL-225", "GAUDI2"),
        ("Product Name", "Device Id               : 0x1da31060", "GAUDI3"),
    ],
)
def test_generation_from_remaining_field(hl_smi_text: Text, field: str, line: str, generation: str) -> None:
    """The generation comes from the PCI id, else from the product name."""
    name = {"GAUDI2": "gaudi2", "GAUDI3": "gaudi3"}[generation]
    text = "\n".join(part for part in hl_smi_text(f"hl-smi-L-{name}.txt").splitlines() if field not in part)
    devices = _hl_smi_text.parse_log(text)

    assert line in text
    assert {device.generation for device in devices or ()} == {generation}


def test_generation_from_firmware(hl_smi_text: Text) -> None:
    text = hl_smi_text("hl-smi-L-gaudi1.txt").replace("HL-205", "HL-999").replace("0x1da31000", "N/A")
    devices = _hl_smi_text.parse_log(text)

    assert {device.generation for device in devices or ()} == {"GAUDI"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Attached AIPs                           : 2", "Attached AIPs                           : 3"),
        ("Attached AIPs                           : 2", ""),
        ("[1] AIP", "[2] AIP"),
        ("0000:1a:00.0", "0000:19:00.0"),
        ("Module ID                       : 1", "Module ID                       : 0"),
        ("Bus Id                  : 0000:1a:00.0", "Bus Id                  : 0000:2a:00.0"),
        ("[1] AIP (accel1) 0000:1a:00.0", "[1] AIP (accel1) somewhere"),
    ],
)
def test_inconsistent_log_is_invalid(hl_smi_text: Text, old: str, new: str) -> None:
    """Any count from it would be a guess."""
    text = hl_smi_text("hl-smi-L-gaudi3.txt")

    assert old in text
    assert _hl_smi_text.parse_log(text.replace(old, new)) is None


def test_unavailable_fields_are_unknown() -> None:
    text = "Driver Version : \nAttached AIPs : 1\n[0] AIP (accel0) 0000:19:00.0\nProduct Name : N/A\nModule ID : N/A\n"

    assert _hl_smi_text.parse_log(text) == (HPUDevice(index=0, pci_address="0000:19:00.0", source="hl-smi"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Habanalabs hl-smi/hlml version hl-1.18.0-fw-53.1.1.1 (Oct 09 2024 - 20:09:06)", Version("1.18.0")),
        ("HL-SMI Version hl-1.24.1-fw-62", Version("1.24.1")),
        ("hl-smi: command not found", None),
        ("", None),
    ],
)
def test_parse_version(text: str, expected: Version | None) -> None:
    assert _hl_smi_text.parse_version(text) == expected


_LOG = """Driver Version : 1.12.1-cb7a7bc
Attached AIPs : 2
[0] AIP (accel0) 0000:19:00.0
  Product Name : HL-225
  Module status : Operational
  Module ID : 3
  Device Id : 0x1da31020
  Memory Usage
    Total : 98304 MB
[1] AIP (accel1) 0000:1a:00.0
  Product Name : HL-225
  Module status : Operational
  Module ID : 7
"""


@st.composite
def _mangled(draw: st.DrawFn, text: str) -> str:
    """Draw `text` with parts removed, repeated, moved or overwritten."""
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        put = draw(st.one_of(st.text(max_size=8), st.just(text[start:end] * 2), st.sampled_from(["\n", ":", ",", '"'])))
        text = text[:start] + put + text[end:]
    return text


def _check_contained(text: str, devices: tuple[HPUDevice, ...] | None) -> None:
    """Check that the text contains every value of the devices."""
    for device in devices or ():
        assert device.pci_address is not None
        assert device.pci_address.removeprefix("0000:") in text.lower()
        assert device.module_id is None or re.search(rf"\b0*{device.module_id}\b", text)
        assert device.generation in {*get_args(Generation), None}
        assert not device.is_operational or "operational" in text.lower()
    addresses = {device.pci_address for device in devices or ()}
    assert len(addresses) == len(devices or ())


@settings(deadline=None)
@given(text=_mangled(_LOG))
def test_mangled_log(text: str) -> None:
    _check_contained(text, _hl_smi_text.parse_log(text))


@settings(deadline=None)
@given(text=st.text())
def test_any_text(text: str) -> None:
    """Unrelated text lists no device."""
    assert not _hl_smi_text.parse_log(text)


@settings(deadline=None)
@given(text=_mangled("Habanalabs hl-smi/hlml version hl-1.18.0-fw-53.1.1.1"))
def test_mangled_version(text: str) -> None:
    version = _hl_smi_text.parse_version(text)

    # A number may be written with leading zeros, which a version does not keep.
    digits = re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)
    assert version is None or str(version) in digits
