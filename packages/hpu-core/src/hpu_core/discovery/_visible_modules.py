"""HABANA_VISIBLE_MODULES: module ids of the devices that the processes of a job may use.

The bridge gives the process of local rank i the i-th module of the list, and supports at most 8 modules. It validates
nothing before it opens a device, and its own `device_count` ignores the variable.
"""
# hpu-doctor verify: rank-selects-module, device-count-ignores-visible-modules

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from hpu_core.discovery._device import HPUDevice, printable

VARIABLE: Final = "HABANA_VISIBLE_MODULES"

_MAX_MODULES = 8

# Set beside VARIABLE by `select`: its own value of VARIABLE, then the user's. Processes started later inherit both.
_SELECTION: Final = "HPU_SELECTED_MODULES"

# The bridge passes the text on unchanged, so signs, spaces and leading zeros are invalid.
_MODULE = re.compile(r"0|[1-9][0-9]?")


class VisibleModulesError(ValueError):
    """HABANA_VISIBLE_MODULES is invalid."""


def from_environment(environ: Mapping[str, str] = os.environ) -> tuple[int, ...] | None:
    """Return the module ids in the user's HABANA_VISIBLE_MODULES, in its order; None if it is not set."""
    return _parse(_user_value(environ))


def selected() -> tuple[int, ...] | None:
    """Return the module ids that the ranks of this machine open, in their order: those of `select`, or the user's."""
    return _parse(os.environ.get(VARIABLE))


def select(modules: Sequence[int] | None) -> None:
    """Set HABANA_VISIBLE_MODULES for the bridge, which opens no other module then; None restores the user's value.

    The user's value is kept for `from_environment`, also in processes that this one starts.
    """
    user = _user_value(os.environ)
    if modules is None:
        os.environ.pop(_SELECTION, None)
        if user is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = user
        return
    os.environ[VARIABLE] = ",".join(map(str, modules))
    os.environ[_SELECTION] = f"{os.environ[VARIABLE]};{user or ''}"


def _user_value(environ: Mapping[str, str]) -> str | None:
    value = environ.get(VARIABLE)
    selection, separator, user = environ.get(_SELECTION, "").partition(";")
    # Where they differ, the program has set HABANA_VISIBLE_MODULES since.
    return (user or None) if separator and selection == value else value


def _parse(value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    entries = value.split(",")
    if not all(_MODULE.fullmatch(entry) for entry in entries):
        raise _error(value, "has an entry that is not a module id")
    if len(set(entries)) < len(entries):
        raise _error(value, "has the same module twice")
    if len(entries) > _MAX_MODULES:
        raise _error(value, f"has {len(entries)} modules")
    return tuple(int(entry) for entry in entries)


def visible_modules_text(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the user's HABANA_VISIBLE_MODULES as printable text, None if it is not set."""
    value = _user_value(environ)
    return None if value is None else printable(value)


def usable(devices: Sequence[HPUDevice], allowed: Sequence[int] | None) -> tuple[int, ...]:
    """Return the module ids of the operational devices that the variable allows; see `usable_modules`."""
    operational = [device.module_id for device in devices if device.is_operational]
    present = {device.module_id for device in devices if device.module_id is not None}
    if allowed is not None and devices and all(device.module_id is not None for device in devices):
        _check_present(allowed, present)
    if None in operational:
        return tuple(range(len(operational)) if allowed is None else allowed[: len(operational)])
    known = sorted(module for module in operational if module is not None)
    return tuple(known if allowed is None else (module for module in allowed if module in known))


def number(devices: Sequence[HPUDevice], allowed: Sequence[int] | None) -> tuple[HPUDevice, ...]:
    """Return the devices by the indices that `devices=[...]` takes, and after them those that cannot be used.

    Raises:
        VisibleModulesError: `allowed` has a module that this machine does not have.
    """
    modules = usable(devices, allowed)
    operational = [device for device in devices if device.is_operational]
    by_module = {device.module_id: device for device in operational}
    chosen = operational[: len(modules)] if None in by_module else [by_module[module] for module in modules]
    others = [device for device in devices if not any(device is each for each in chosen)]
    return (
        *(dataclasses.replace(device, index=index) for index, device in enumerate(chosen)),
        *(dataclasses.replace(device, index=None) for device in others),
    )


def _check_present(modules: Sequence[int], present: set[int]) -> None:
    missing = [module for module in modules if module not in present]
    if missing:
        raise VisibleModulesError(
            f"{VARIABLE} must list modules of this machine ({', '.join(map(str, sorted(present)))}), got "
            f"{','.join(map(str, modules))!r} with module {missing[0]}: correct it, or unset it to use all cards"
        )


def _error(value: str, reason: str) -> VisibleModulesError:
    return VisibleModulesError(
        f"{VARIABLE} must be a comma-separated list of 1 to {_MAX_MODULES} different module ids, such as '0,1,2,3', "
        f"got {printable(value)!r}, which {reason}: correct it, or unset it to use all cards"
    )
