"""HCCL initialization: rank and device of this process, set before its device is opened."""

import os
import warnings
from collections.abc import Mapping, Sequence

from hpu_core import _rendezvous_env, bridge, launcher_env
from hpu_core.discovery import _visible_modules

_MODULE = "HLS_MODULE_ID"
# The bridge sets it to the rank, and names its log files by it.
_LOG_ID = "ID"

# Original values of the variables, for `restore_environment`.
_saved: dict[str, str | None] = {}
# Module that this process selected; it outlives the variable.
_selected: str | None = None


def initialize_hccl(world_size: int, rank: int, local_rank: int) -> tuple[int, int, int]:
    """Initialize HCCL for this process: set its rank and select its device, without opening the device.

    Sets WORLD_SIZE, RANK and LOCAL_RANK through the bridge. With more than one process, also sets HLS_MODULE_ID, the
    module that this process opens: the local rank's entry of HABANA_VISIBLE_MODULES, or the local rank itself. An
    HLS_MODULE_ID of a single process stays, and so does that of a rank of torchrun, Open MPI or SLURM, where a wrapper
    may have set it per rank; any other is inherited from the launching process, and is replaced. MASTER_ADDR and
    MASTER_PORT are unchanged, although the bridge's import sets them. Create the process group afterwards, with
    `torch.distributed.init_process_group("hccl")`.

    Args:
        world_size: Number of processes, at least 1.
        rank: Global rank of this process, from 0.
        local_rank: Rank of this process on its machine, from 0.

    Returns:
        (world_size, rank, local_rank) as the bridge returns them.

    Raises:
        ValueError: An argument is out of range, or HABANA_VISIBLE_MODULES is invalid or has no entry for this rank.
        ModuleNotFoundError: The Gaudi bridge is not installed.
        RuntimeError: The process has already opened another device than that of its rank.
    """
    # hpu-doctor verify: rank-selects-module
    if world_size < 1:
        raise ValueError(f"`world_size` must be at least 1, got {world_size}")
    _check_rank("rank", rank, world_size)
    _check_rank("local_rank", local_rank, world_size)
    module = _module(world_size, local_rank)
    # First, because without a bridge the environment must not change.
    bridge.load_hccl()
    _select(module, local_rank)
    # The import of a rank's bridge sets both, also under an engine; a wrapper's module is inherited.
    if world_size > 1 and _MODULE not in _rendezvous_env.inherited_names():
        modules = _visible_modules.selected() or range(world_size)
        module = str(dict(enumerate(modules)).get(local_rank))
    _save(_LOG_ID, str(rank))
    _save(_MODULE, module)
    return bridge.initialize_distributed(world_size, rank, local_rank)


def set_environment(variables: Mapping[str, str]) -> None:
    """Set variables of the bridge that are not set, until `restore_environment`; before the device is opened."""
    for name in variables.keys() - os.environ.keys():
        _save(name)
        os.environ[name] = variables[name]


def restore_environment() -> None:
    """Restore the variables that this module has changed, among them HLS_MODULE_ID, to what they were before.

    The device stays open, and selected: the same process may train again.
    """
    global _selected  # noqa: PLW0603 - a process opens one device.
    _visible_modules.select(None)
    # Also what the bridge has selected, for a second training.
    _selected = _selected or os.environ.get(_MODULE)
    while _saved:
        name, value = _saved.popitem()
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def select_device(world_size: int = 1, local_rank: int = 0, modules: Sequence[int] | None = None) -> None:
    """Select the device of this process as `initialize_hccl` does, without setting its rank.

    For a process that creates tensors on its device before the rendezvous. A single-process run opens a device that
    `modules` or HABANA_VISIBLE_MODULES allows; the bridge by itself would open the first free one. Without `modules`,
    which are the module ids for the local ranks, an HLS_MODULE_ID that is set is the user's choice there. An open
    device stays.

    Raises:
        ValueError: HABANA_VISIBLE_MODULES is invalid, or there is no module for this rank.
        RuntimeError: The process is one of several and has already opened another device than that of its rank.
    """
    is_kept = world_size == 1 and bridge.is_open()
    if is_kept and modules is not None and _selected != str(modules[0]):
        opened = "a card" if _selected is None else f"module {_selected}"
        warnings.warn(
            f"`devices` selects module {modules[0]}, but this process has already opened {opened} and keeps it: start "
            "another program to train on another card",
            stacklevel=2,
        )
    if is_kept:
        return
    _visible_modules.select(modules)
    _select(_module(world_size, local_rank, is_explicit=modules is not None), local_rank)


def _check_rank(name: str, value: int, world_size: int) -> None:
    if not 0 <= value < world_size:
        raise ValueError(f"`{name}` must be at least 0 and below `world_size`, which is {world_size}, got {value}")


def _module(world_size: int, local_rank: int, *, is_explicit: bool = False) -> str | None:
    """Return the module id of this rank's device, or None to leave the choice as it is."""
    if os.environ.get(_MODULE) and not is_explicit and (world_size == 1 or launcher_env.is_started_by_engine()):
        # The user set it, or a wrapper of the rank. Devices that the program lists take precedence.
        return None
    modules = _visible_modules.selected()
    if modules is None:
        return None if world_size == 1 else str(local_rank)
    if local_rank >= len(modules):
        raise ValueError(
            f"HABANA_VISIBLE_MODULES={','.join(map(str, modules))!r} must name a module for each process of this "
            f"machine, and has none for local rank {local_rank}: name more modules, or start at most {len(modules)} "
            "processes here"
        )
    return str(modules[local_rank])


def _select(module: str | None, local_rank: int) -> None:
    """Select `module` as the device that the bridge opens; None leaves the selection to the bridge.

    Raises:
        RuntimeError: The process has already opened another device.
    """
    # hpu-doctor verify: rank-selects-module
    global _selected  # noqa: PLW0603 - a process opens one device.
    chosen = os.environ.get(_MODULE)
    # The bridge has chosen the open card, and opens another one than HLS_MODULE_ID for a rank whose card is in use.
    is_chosen_by_bridge = bridge.is_open() and not (chosen or _selected or _visible_modules.selected())
    if module is None or module == chosen or is_chosen_by_bridge:
        return
    if bridge.is_open() and module != _selected:
        raise RuntimeError(
            f"local rank {local_rank} must use module {module}, but this process has already opened a card "
            f"({_MODULE}={chosen or _selected!r}): call `initialize_hccl` before anything touches the device"
        )
    _save(_MODULE)
    os.environ[_MODULE] = _selected = module


def _save(name: str, of_bridge: str | None = None) -> None:
    """Keep the value of a variable, unless it is the one that the bridge has set."""
    value = os.environ.get(name)
    _saved.setdefault(name, None if value == of_bridge else value)
