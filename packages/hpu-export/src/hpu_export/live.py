"""Export of the model that a Trainer or Fabric is training."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpu_export.export import check_target, export_checkpoint
from hpu_export.options import ExportOptions

__all__ = ["export_model"]


def export_model(owner: Any, to: str | os.PathLike[str], *, module: Any = None, **options: Any) -> Path:
    """Export the model of a Trainer or Fabric; every rank must call this function.

    The strategy saves a checkpoint beside `to`, which rank 0 exports and removes. All strategies can be exported in
    this way, with the memory of a checkpoint. The ranks must share a file system, as for a sharded checkpoint.

    Args:
        owner: The Trainer or Fabric.
        to: A new file `*.safetensors`, or a new folder.
        module: The module that `Fabric.setup` has returned; left out for a Trainer.
        **options: Fields of `ExportOptions`.

    Returns:
        The path of the export, when it is complete.

    Raises:
        RuntimeError: Rank 0 could not export; it raises the error itself, as `export_checkpoint` does.
        TypeError: `owner` is neither a Trainer nor Fabric.
        ValueError: `module` is missing, or an option is not valid.
    """
    settings = ExportOptions(**options)
    is_trainer = hasattr(owner, "save_checkpoint")
    if not is_trainer and not hasattr(owner, "save"):
        raise TypeError(f"`owner` must be a Trainer or Fabric, got {type(owner).__name__!r}")
    if not is_trainer and module is None:
        raise ValueError("`module` must be what Fabric.setup has returned, got None")
    strategy = owner.strategy
    target = Path(strategy.broadcast(os.fspath(to)))
    checkpoint = target.absolute().parent / f".hpu-export-{target.name}.ckpt"

    def prepare() -> None:
        check_target(target, str(checkpoint), settings)
        _remove(checkpoint)

    _on_rank_zero(owner, prepare)
    try:
        if is_trainer:
            owner.save_checkpoint(checkpoint, weights_only=True)
        else:
            owner.save(checkpoint, {"model": module})
        # Of hpu-fsdp's asynchronous saves.
        finish = getattr(strategy, "finish_save", None)
        if finish is not None:
            finish()
        strategy.barrier()
        if settings.adapter and settings.adapter_config is None:
            options["adapter_config"] = _adapter_config(module if module is not None else owner.lightning_module)
        _on_rank_zero(owner, lambda: export_checkpoint(checkpoint, target, **options))
    finally:
        if owner.is_global_zero:
            _remove(checkpoint)
    return target


def _on_rank_zero(owner: Any, function: Callable[[], object]) -> None:
    """Call a function on rank 0 while the others wait, and raise an error on all ranks if it fails.

    Raises:
        Exception: The function's own, on rank 0.
        RuntimeError: It has failed, on the others.
    """
    failure: Exception | None = None
    if owner.is_global_zero:
        try:
            function()
        except Exception as error:  # noqa: BLE001 - raised below, once the others know.
            failure = error
    message = owner.strategy.broadcast(None if failure is None else str(failure))
    if failure is not None:
        raise failure
    if message is not None:
        raise RuntimeError(f"rank 0 could not export the model: {message}")


def _adapter_config(module: Any) -> Any:
    """Return the configuration of the first adapter in a module."""
    for part in module.modules():
        configs = getattr(part, "peft_config", None)
        if isinstance(configs, dict) and configs:
            return next(iter(configs.values()))
    return None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
