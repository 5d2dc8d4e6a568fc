"""Switch the simulator on, once per process."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim.config import DEFAULT_GENERATION, REPORT_VARIABLE, SimConfig, lazy_variable, memory_variable

if TYPE_CHECKING:
    from hpu_sim.cards import CardLock
    from hpu_sim.native import Native
    from hpu_sim.report.session import RecordingSession

_active: SimConfig | None = None
_starting = False
_card: CardLock | None = None
_recording: RecordingSession | None = None
_forked_after_acquire = False


def is_active() -> bool:
    """Return whether this process has the simulated device."""
    return _active is not None


def active_config() -> SimConfig:
    """Return the simulated machine of this process.

    Raises:
        RuntimeError: If the simulator is not active.
    """
    if _active is None:
        raise RuntimeError("the simulated hpu device is not active; call hpu_sim.activate() first")
    return _active


def activate(
    devices: int = 1,
    generation: str = DEFAULT_GENERATION,
    release: str | None = None,
    memory: int | str | None = None,
) -> None:
    """Give this process and its children a machine with simulated Gaudi cards.

    The first call on a machine compiles the device, which takes about half a minute. No card is taken: that happens
    when the first hpu tensor is made. Calling it again with the same values does nothing.

    Args:
        devices: Cards of the machine, 1 to 64. A process uses one of them.
        generation: ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
        release: SynapseAI release to play, such as ``"1.18.0"``; None for the newest that is known well. It decides
            what the bridge offers and whether lazy or eager mode is the default; ``PT_HPU_LAZY_MODE`` overrides.
        memory: Memory of a card, in bytes or as text such as ``"16GiB"``, up to what the generation has; None for
            ``HPU_SIM_MEMORY``, or all of it.

    Raises:
        ValueError: If a value is out of its range or unknown.
        RuntimeError: If the simulator is already active as another machine, if a real ``habana_frameworks`` is
            installed, or if the device cannot be built (:class:`hpu_sim.build.BuildError`).
    """
    memory = memory_variable() if memory is None else memory
    _start(SimConfig.create(devices, generation, release, lazy=lazy_variable(), memory=memory))


def activate_from_environment() -> None:
    """Activate as ``HPU_SIM_DEVICES`` and its companions say; do nothing where it is unset.

    Raises:
        ValueError: If a variable has a value out of its range or unknown.
        RuntimeError: As :func:`activate`.
    """
    config = SimConfig.from_environment(os.environ)
    if config is not None:
        _start(config)


def _start(config: SimConfig) -> None:
    global _starting  # noqa: PLW0603 - one machine per process
    if _starting:
        # The `import torch` of this very start: torch asks for the device by itself where the environment does.
        return
    if _active is not None:
        if config != _active:
            raise RuntimeError(
                f"the simulator already runs as {_describe(_active)} and cannot become {_describe(config)}; "
                "a process has one machine, use another process"
            )
        return
    _starting = True
    try:
        _bring_up(config)
    finally:
        _starting = False


def _bring_up(config: SimConfig) -> None:
    global _active  # noqa: PLW0603 - one machine per process
    _refuse_beside_real_bridge()

    from hpu_sim import autocast, build, children, distribution, native

    device = native.install(build.load_extension())
    device.configure(config.devices, config.lazy, config.memory_bytes, acquire_card)
    device.set_low_precision_supported(config.generation != "GAUDI")
    autocast.register(device, os.environ)
    _active = config
    os.environ.update(children.variables(config, os.environ))
    os.register_at_fork(after_in_child=_after_fork)
    distribution.offer(config.release)
    _offer_bridge(config)
    _start_recording(config, device)


def _start_recording(config: SimConfig, device: Native) -> None:
    global _recording  # noqa: PLW0603 - one recording per process
    if os.environ.get(REPORT_VARIABLE):
        from hpu_sim.report.session import RecordingSession

        _recording = RecordingSession.from_environment(os.environ, config, device)
        _recording.start()


def _describe(config: SimConfig) -> str:
    mode = "lazy" if config.lazy else "eager"
    memory = f" of {config.memory_bytes} bytes" if config.has_less_memory else ""
    return f"{config.devices} x {config.generation}{memory} on SynapseAI {config.release.version}, {mode} mode"


def _bridge_folder() -> Path:
    return Path(str(resources.files("hpu_sim").joinpath("bridge")))


def real_bridge_folders() -> list[str]:
    """Return where the vendor's own ``habana_frameworks`` is installed; nowhere, as a rule, without a card."""
    spec = importlib.util.find_spec("habana_frameworks")
    # A spawned child inherits the parent's path, and with it the simulated bridge.
    return [
        place
        for place in (spec.submodule_search_locations or [] if spec else [])
        if Path(place).parent != _bridge_folder()
    ]


def _refuse_beside_real_bridge() -> None:
    places = real_bridge_folders()
    if places:
        raise RuntimeError(
            f"a real habana_frameworks is installed ({', '.join(places)}) and the simulator never runs beside it; "
            "unset HPU_SIM_DEVICES, or use an environment without the bridge"
        )


def _offer_bridge(config: SimConfig) -> None:
    from hpu_sim import features

    # Path entries rather than made-up modules, so that `find_spec`, pickling and tracebacks treat the bridge as any
    # package.
    folders = [_bridge_folder()]
    if features.features_of(config.release.version).separate_transformer_engine:
        folders.append(_bridge_folder().with_name("bridge_from_1_19"))
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    importlib.invalidate_caches()
    importlib.import_module("habana_frameworks.torch")


def acquire_card() -> None:
    """Take a card for this process, unless it has one, and let activation checkpointing default to the device.

    Raises:
        RuntimeError: If no card is free, or if the process was forked off one that had a card.
    """
    global _card  # noqa: PLW0603 - one card per process
    if _card is not None:
        return
    if _forked_after_acquire:
        raise RuntimeError(
            "Cannot re-initialize HPU in forked subprocess. To use HPU with multiprocessing, "
            "you must use the 'spawn' start method"
        )
    config = active_config()

    from hpu_sim import cards
    from hpu_sim.native import native

    _card = cards.acquire(config.devices, os.environ)
    native().set_acquired(True)
    atexit.register(_settle)
    _tell_checkpointing()
    if _recording is not None:
        _recording.on_device_acquired(_card.module_id)
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"hpu-sim: simulated card {_card.module_id} of {_describe(config)}\n")


def _tell_checkpointing() -> None:
    """Let activation checkpointing save the card's random numbers where no tensor tells it the device."""
    from torch.utils import checkpoint

    # Not in torch 2.0, whose checkpointing knows the random numbers of CUDA and of the CPU only.
    default = getattr(checkpoint, "DefaultDeviceType", None)
    if default is not None:
        default.set_device_type("hpu")


def _settle() -> None:
    """Let the device come to rest before the interpreter ends."""
    from hpu_sim.native import native

    # Not in a forked child, which has none of its parent's threads.
    if _card is not None:
        native().finish_backward_passes()


def has_card() -> bool:
    """Return whether this process holds a card."""
    return _card is not None


def is_in_bad_fork() -> bool:
    """Return whether this process was forked off one that had a card, so that it cannot use the device."""
    return _forked_after_acquire


def _after_fork() -> None:
    global _card, _forked_after_acquire  # noqa: PLW0603 - one card per process
    if _card is None:
        return
    from hpu_sim.native import native

    _forked_after_acquire = True
    _card.release()
    _card = None
    native().set_acquired(False)
