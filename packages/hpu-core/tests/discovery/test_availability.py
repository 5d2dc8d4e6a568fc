"""Tests of the number of usable devices, and of the error if there is none."""

from collections.abc import Sequence

import pytest

from hpu_core.discovery import HPUDevice, NoHPUError, ScanResult, SourceResult, VisibleModulesError
from hpu_core.discovery._availability import no_device_error, usable_count, usable_modules


def _devices(*module_ids: int | None, faulty: Sequence[int] = ()) -> tuple[HPUDevice, ...]:
    """Return devices with these module ids; those with the indices `faulty` are in reset."""
    return tuple(
        HPUDevice(
            index=index,
            module_id=module_id,
            status="In reset" if index in faulty else "Operational",
            source="sysfs",
        )
        for index, module_id in enumerate(module_ids)
    )


def test_operational_devices_count() -> None:
    assert usable_count(_devices(0, 1, 2, faulty=[1]), None) == 2


def test_unknown_status_does_not_count() -> None:
    assert usable_count([HPUDevice(index=0, source="hl-smi")], None) == 0


def test_visible_modules_limit_the_count() -> None:
    assert usable_count(_devices(3, 7, 2, 1, faulty=[1]), [7, 2, 3]) == 2


def test_unknown_module_ids() -> None:
    """If module ids are unknown, no more devices count than the variable has entries."""
    assert usable_count(_devices(None, None, None), [4, 5]) == 2


def test_unknown_module_ids_of_fewer_devices() -> None:
    assert usable_count(_devices(None), [4, 5]) == 1


def test_missing_module_is_rejected() -> None:
    """The process that would get it could not open a device."""
    with pytest.raises(
        VisibleModulesError,
        match=r"^HABANA_VISIBLE_MODULES must list modules of this machine \(0, 1\), got '0,9' with module 9",
    ):
        usable_count(_devices(0, 1), [0, 9])


@pytest.mark.parametrize(
    ("devices", "modules", "expected"),
    [
        (_devices(3, 0, 1, faulty=[2]), None, [0, 3]),
        (_devices(0, 1, 2, 3), (3, 1), [3, 1]),
        (_devices(None, None), None, [0, 1]),
        (_devices(None, None), (4, 5, 6), [4, 5]),
    ],
    ids=["all", "HABANA_VISIBLE_MODULES", "unknown ids", "unknown ids, HABANA_VISIBLE_MODULES"],
)
def test_usable_modules(devices: Sequence[HPUDevice], modules: Sequence[int] | None, expected: list[int]) -> None:
    """An index of `devices` counts the entries of HABANA_VISIBLE_MODULES, or the module ids in their order."""
    assert usable_modules(devices, modules) == expected


def test_no_devices() -> None:
    """Without devices there is nothing to compare the variable with."""
    assert usable_count((), [0, 1]) == 0


def test_error_without_devices() -> None:
    """The error lists the result of each source."""
    sources = (
        SourceResult(source="sysfs", location="/sys/class/accel", message="0 of 1 devices have PCI vendor 0x1da3"),
        SourceResult(source="hl-smi", location="the command hl-smi", message="not on PATH"),
    )
    text = str(no_device_error(ScanResult(devices=(), sources=sources)))

    assert text.startswith("no Gaudi card was found. Searched:\n")
    assert "\n- /sys/class/accel: 0 of 1 devices have PCI vendor 0x1da3\n" in text
    assert "\n- the command hl-smi: not on PATH\n" in text


def test_error_without_operational_device() -> None:
    """The error has the status of each device."""
    text = str(no_device_error(ScanResult(devices=_devices(0, 1, faulty=[0, 1]))))

    assert text.startswith("none of the 2 Gaudi cards found can be used (0: In reset, 1: In reset)")


def test_error_is_a_runtime_error() -> None:
    assert issubclass(NoHPUError, RuntimeError)
