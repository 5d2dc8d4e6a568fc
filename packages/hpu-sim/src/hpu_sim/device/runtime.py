"""State of the simulator in this process: configuration, native device and device lock.

:mod:`hpu_sim.process.activation` writes it. The simulated bridge, the report and the pytest plugin read it.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hpu_sim.device import device_lock
from hpu_sim.device.config import ASYNC_VARIABLE, BLOCKING_VARIABLE, is_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_sim.device.config import SimConfig
    from hpu_sim.device.device_lock import DeviceLock
    from hpu_sim.device.native import Native


# Unit to which the bridge's memory pool rounds up, in bytes, by its default strategy: bridge 1.19's
# backend/synapse_helpers, which reads it from the device (hal.h of HabanaAI/Intel_Gaudi3_Software at e6cef1c).
_MEMORY_UNITS: Final = {"GAUDI": 128, "GAUDI2": 128, "GAUDI3": 256}


@dataclass
class _State:
    """State of a process in which the simulator is active.

    Attributes:
        config: The simulated machine; None while the simulator is not active.
        native: The C++ extension; None while the simulator is not active.
        on_acquired: Called with the module id of the device when it is acquired; None for nothing.
        lock: Lock of the device that this process has acquired; None before the first use.
        is_in_bad_fork: Whether the parent had acquired a device when it forked this process.
        acquire_lock: Held while a thread acquires the device.
    """

    config: SimConfig | None = None
    native: Native | None = None
    on_acquired: Callable[[int], None] | None = None
    lock: DeviceLock | None = None
    is_in_bad_fork: bool = False
    # Reentrant, because the callback may use the device as soon as it is acquired.
    acquire_lock: threading.RLock = field(default_factory=threading.RLock)


_state = _State()


def set_active(config: SimConfig, native: Native) -> None:
    """Make the simulator active in this process and in what it forks."""
    _state.config = config
    _state.native = native
    os.register_at_fork(after_in_child=_release_after_fork)


def on_acquire(callback: Callable[[int], None]) -> None:
    """Call a function with the module id of the device when this process acquires it."""
    _state.on_acquired = callback


def is_active() -> bool:
    """Return whether this process has the simulated device."""
    return _state.config is not None


def active_config() -> SimConfig:
    """Return the simulated machine of this process.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    if _state.config is None:
        raise _inactive_error()
    return _state.config


def native() -> Native:
    """Return the C++ extension.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    if _state.native is None:
        raise _inactive_error()
    return _state.native


def _inactive_error() -> RuntimeError:
    return RuntimeError(
        "the simulated hpu device is not active; set HPU_SIM_DEVICES=1, use `hpu-sim run`, "
        "or call hpu_sim.activate() first"
    )


def has_device() -> bool:
    """Return whether this process has acquired a device."""
    return _state.lock is not None


def is_in_bad_fork() -> bool:
    """Return whether the parent had acquired a device when it forked this process, which makes the device unusable."""
    return _state.is_in_bad_fork


def acquire_device() -> None:
    """Acquire a device for this process unless it has one, and make it the default of activation checkpointing.

    Raises:
        RuntimeError: If no device is free, or if the parent had acquired one when it forked this process.
    """
    if _state.lock is None:
        with _state.acquire_lock:
            if _state.lock is None:
                _acquire_device()


def set_strict(native: Native, generation: str, *, enabled: bool) -> None:
    """Make a device of a generation strict, and thereby asynchronous, or end that."""
    native.wait_for_device()
    native.set_execution_mode("later" if enabled or is_on(os.environ, ASYNC_VARIABLE) else "now")
    native.set_blocking(is_on(os.environ, BLOCKING_VARIABLE))
    native.set_strict(_MEMORY_UNITS[generation] if enabled else 0)


def _acquire_device() -> None:
    if _state.is_in_bad_fork:
        raise RuntimeError(
            "Cannot re-initialize HPU in forked subprocess. To use HPU with multiprocessing, "
            "you must use the 'spawn' start method"
        )
    config = active_config()
    _state.lock = device_lock.acquire(config.devices, os.environ)
    native().set_acquired(True)
    if config.strict or is_on(os.environ, ASYNC_VARIABLE):
        native().exit_at_interrupt()
    _set_checkpoint_device_type()
    if _state.on_acquired is not None:
        _state.on_acquired(_state.lock.module_id)
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"hpu-sim: simulated card {_state.lock.module_id} of {config.describe()}\n")


def _set_checkpoint_device_type() -> None:
    """Make activation checkpointing preserve the device's random state also where no tensor argument is on it."""
    from torch.utils import checkpoint

    # torch 2.0 has no such default: its checkpointing preserves random states of the CPU and of CUDA only.
    default = getattr(checkpoint, "DefaultDeviceType", None)
    if default is not None:
        default.set_device_type("hpu")


def drain() -> None:
    """Drain the autograd engine and the device, if this process has one, before shutdown."""
    # A forked child has none of its parent's threads.
    if _state.lock is not None:
        native().drain_autograd_engine()
        native().finish_collectives()


def _release_after_fork() -> None:
    # Another thread of the parent may hold the mutex, and does not exist here.
    _state.acquire_lock = threading.RLock()
    if _state.lock is None:
        return
    _state.is_in_bad_fork = True
    _state.lock.release()
    _state.lock = None
    native().set_acquired(False)
