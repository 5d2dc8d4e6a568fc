"""Activation of the simulator, once per process."""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hpu_sim.common import frames
from hpu_sim.data import op_support
from hpu_sim.device import machine_id, runtime
from hpu_sim.device.config import (
    DEFAULT_GENERATION,
    LAZY_VARIABLE,
    MEMORY_VARIABLE,
    PLACE_ON_CPU_VARIABLE,
    REPORT_VARIABLE,
    STRICT_VARIABLE,
    SimConfig,
    is_on,
)
from hpu_sim.process import import_hooks

if TYPE_CHECKING:
    from hpu_sim.device.native import Native

_is_starting = False


def activate(
    devices: int = 1,
    generation: str = DEFAULT_GENERATION,
    release: str | None = None,
    memory: int | str | None = None,
    *,
    strict: bool | None = None,
) -> None:
    """Simulate a machine with Gaudi cards in this process and its subprocesses.

    The first call on a machine compiles the device, which takes about half a minute. No card is acquired before the
    first hpu tensor is created. An installed hpu-core registers "hpu" with Lightning. Another call with the same values
    does nothing.

    Args:
        devices: Number of cards of the machine, 1 to 64. A process uses one of them.
        generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
        release: SynapseAI release to simulate, such as ``"1.18.0"``; None for the newest well-known one. It selects the
            API of the bridge and the default of ``PT_HPU_LAZY_MODE``.
        memory: Memory of a card, in bytes or as text such as ``"16GiB"``, at most that of the generation; None for
            ``HPU_SIM_MEMORY`` or all of it.
        strict: Whether what a card refuses or does otherwise fails or shows itself; None for ``HPU_SIM_STRICT``.

    Raises:
        ValueError: If a value is out of range or unknown.
        RuntimeError: If the simulator is already active as another machine, if a real ``habana_frameworks`` is
            installed, or if the device cannot be built (:class:`hpu_sim.device.build.BuildError`).
    """
    memory = os.environ.get(MEMORY_VARIABLE) or None if memory is None else memory
    strict = is_on(os.environ, STRICT_VARIABLE) if strict is None else strict
    lazy = os.environ.get(LAZY_VARIABLE)
    _start(SimConfig.create(devices, generation, release, lazy=lazy, memory=memory, strict=strict))
    _register_with_lightning()


def activate_from_environment() -> None:
    """Activate the machine of ``HPU_SIM_DEVICES`` and related variables; do nothing if it is unset.

    Raises:
        ValueError: If the value of a variable is out of range or unknown.
        RuntimeError: As in :func:`activate`.
    """
    config = SimConfig.from_environment(os.environ)
    if config is not None:
        _start(config)


def _start(config: SimConfig) -> None:
    global _is_starting  # noqa: PLW0603 - one machine per process
    if _is_starting:
        # Loading the extension imports torch, whose autoload calls this again if HPU_SIM_DEVICES is set.
        return
    if runtime.is_active():
        active = runtime.active_config()
        if config != active:
            raise RuntimeError(
                f"the simulator already runs as {active.describe()} and cannot become {config.describe()}; "
                "use another process, because each has one machine"
            )
        return
    _is_starting = True
    try:
        _initialize(config)
    finally:
        _is_starting = False


def _initialize(config: SimConfig) -> None:
    _raise_if_real_bridge()

    from hpu_sim.device import autocast, build
    from hpu_sim.process import fake_dist_metadata, subprocess_env

    native = cast("Native", build.load_extension())
    native.configure(config.devices, config.lazy, runtime.acquire_device)
    native.set_memory_limit(config.memory_bytes)
    native.register_operators(
        op_support.device_operators(lazy=config.lazy), op_support.device_dtypes(config.generation)
    )
    native.set_cpu_placement(os.environ.get(PLACE_ON_CPU_VARIABLE) != "none")
    native.set_low_precision_supported(config.generation != "GAUDI")
    runtime.set_strict(native, config.generation, enabled=config.strict)
    native.set_locator(frames.program_line)
    autocast.register(native, os.environ)
    runtime.set_active(config, native)
    os.environ.update(subprocess_env.variables(config, os.environ))
    os.environ.update(machine_id.inherited_or_new(os.environ))
    fake_dist_metadata.register(config.release)
    _add_bridge_to_path()
    if os.environ.get(REPORT_VARIABLE):
        from hpu_sim.report.session import RecordingSession

        session = RecordingSession(Path(os.environ[REPORT_VARIABLE]), config)
        runtime.on_acquire(session.on_device_acquired)
        session.start()
    # The program's handlers come first: the bridge waits for the device in one of C.
    atexit.register(runtime.drain)


def _register_with_lightning() -> None:
    # torch calls the entry point while it is imported, where hpu-core found no device.
    for entry_point in importlib.metadata.entry_points(group="torch.backends", name="hpu_core"):
        entry_point.load()()


def real_bridge_folders() -> list[str]:
    """Return the folders of an installed ``habana_frameworks`` of the vendor."""
    spec = importlib.util.find_spec("habana_frameworks")
    # A spawned subprocess inherits sys.path, and with it the simulated bridge.
    folders = spec.submodule_search_locations or [] if spec else []
    return [folder for folder in folders if Path(folder).parent != import_hooks.BRIDGE_FOLDER]


def _raise_if_real_bridge() -> None:
    folders = real_bridge_folders()
    if folders:
        raise RuntimeError(
            f"the simulator must not run beside a real habana_frameworks, got {', '.join(folders)}; "
            "unset HPU_SIM_DEVICES, or use an environment without the bridge"
        )


def _add_bridge_to_path() -> None:
    # On sys.path instead of in sys.modules: `find_spec`, pickling and tracebacks then work as for any package.
    folder = str(import_hooks.BRIDGE_FOLDER)
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    importlib.import_module("habana_frameworks.torch")
