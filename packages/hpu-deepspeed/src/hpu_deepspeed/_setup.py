"""Set-up and checkpoint directories of the Trainer's and Fabric's strategies."""

import copy
import os
from collections.abc import Callable
from typing import Any

from hpu_core.arguments import supported_arguments
from hpu_deepspeed import _config, _deepspeed, _nvme
from hpu_deepspeed._lightning import rank_zero_info, reset_seed


def take_arguments(strategy: Any, arguments: dict[str, Any], base: Callable[..., Any]) -> dict[str, Any]:
    """Take what a strategy has beyond Lightning's out of the arguments of its constructor, and return Lightning's.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: `timeout` is of the wrong type.
    """
    _deepspeed.load()
    taken: dict[str, Any] = strategy.take_arguments(arguments)
    # Set in `finish`, because Lightning before 2.5 does not take it.
    del taken["timeout"]
    return supported_arguments(base, **taken)


def finish(strategy: Any) -> None:
    """Complete what Lightning's constructor has set."""
    vars(strategy)["_timeout"] = strategy.process_groups.timeout
    # Lightning modifies the configuration, and the user may pass the same dict to another strategy.
    strategy.config = copy.deepcopy(strategy.config)
    if removed := _config.remove_auto(strategy.config):
        rank_zero_info(
            f"'auto' in the DeepSpeed config is Hugging Face's. Left out, for the Trainer, Fabric or DeepSpeed to "
            f"set: {', '.join(removed)}"
        )


def prepare_config(strategy: Any, precision: Any) -> None:
    """Add options that DeepSpeed needs to the configuration, before Lightning adds its own."""
    config = strategy.config
    _config.fill_defaults(config)
    if precision == "fp8":
        # Lightning does not know it.
        config.setdefault("bf16", {"enabled": True})


def set_up_distributed(strategy: Any) -> None:
    """Prepare offloading to NVMe, and pass the process group to DeepSpeed."""
    reset_seed()
    _nvme.validate(strategy.config)
    # Removed with the strategy.
    strategy.swap_dirs = _nvme.prepare(strategy.config)
    # DeepSpeed reads the rank from the environment, too.
    ranks = {"RANK": strategy.global_rank, "WORLD_SIZE": strategy.world_size, "LOCAL_RANK": strategy.local_rank}
    os.environ.update({name: str(number) for name, number in ranks.items()})
    _deepspeed.load().init_distributed("hccl", timeout=strategy.process_groups.timeout)


def save(
    strategy: Any,
    save_checkpoint: Callable[..., None],
    path: str | os.PathLike[str],
    state: dict[str, Any],
    storage_options: Any,  # noqa: ARG001 - Lightning refuses them.
) -> None:
    """Save this rank's shard by Lightning's method; it replaces that of an earlier save once every rank has saved."""
    with strategy.replacing(path, _deepspeed.buffered_saves) as folder:
        save_checkpoint(folder, state)
