"""Tests of the devices that can be used, and of the error if there is none."""

from collections.abc import Sequence

import pytest

from hpu_core.discovery import HPUDevice, ScanResult, VisibleModulesError, _no_device_error
from hpu_core.discovery._visible_modules import usable


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


@pytest.mark.parametrize(
    ("devices", "modules", "expected"),
    [
        (_devices(3, 0, 1, faulty=[2]), None, (0, 3)),
        (_devices(0, 1, 2, 3), (3, 1), (3, 1)),
        (_devices(3, 7, 2, 1, faulty=[1]), (7, 2, 3), (2, 3)),
        (_devices(None, None), None, (0, 1)),
        (_devices(None, None, None), (4, 5), (4, 5)),
        (_devices(None, None), (4, 5, 6), (4, 5)),
        (_devices(None, None, faulty=[0]), None, (0,)),
    ],
    ids=[
        "operational",
        "HABANA_VISIBLE_MODULES",
        "HABANA_VISIBLE_MODULES with a faulty one",
        "unknown ids",
        "unknown ids, HABANA_VISIBLE_MODULES",
        "unknown ids, longer HABANA_VISIBLE_MODULES",
        "unknown ids, one faulty",
    ],
)
def test_usable_modules(devices: Sequence[HPUDevice], modules: Sequence[int] | None, expected: tuple[int, ...]) -> None:
    """An index of `devices` counts the entries of HABANA_VISIBLE_MODULES, or the module ids in their order."""
    assert usable(devices, modules) == expected


def test_missing_module_is_rejected() -> None:
    """The process that would get it could not open a device."""
    with pytest.raises(
        VisibleModulesError,
        match=r"^HABANA_VISIBLE_MODULES must list modules of this machine \(0, 1\), got '0,9' with module 9: correct "
        r"it, or unset it to use all cards$",
    ):
        usable(_devices(1, 0), [0, 9])


def test_error_without_operational_device() -> None:
    """The error has the status of each device."""
    text = str(_no_device_error(ScanResult(devices=_devices(0, 1, faulty=[0, 1]))))

    assert text.startswith("none of the 2 Gaudi cards found can be used (0: In reset, 1: In reset)")
