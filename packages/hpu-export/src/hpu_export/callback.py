"""Callback that exports the best checkpoint."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpu_export.export import check_target, export_checkpoint
from hpu_export.live import on_rank_zero
from hpu_export.options import ExportOptions

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
else:
    from hpu_core import frameworks

    Callback = frameworks.current().pytorch("callbacks").Callback

__all__ = ["ExportBestCheckpoint"]


class ExportBestCheckpoint(Callback):
    """Callback that exports the best checkpoint of ModelCheckpoint when training ends, on rank 0 while the others wait.

    It does nothing with `fast_dev_run`, which saves no checkpoint.

    Args:
        to: A new file `*.safetensors`, or a new folder. It is checked before training.
        **options: Fields of `ExportOptions`.

    Raises:
        TypeError: There is no such option.
        ValueError: An option is not valid.
    """

    def __init__(self, to: str | os.PathLike[str], **options: Any) -> None:
        self._to = Path(to)
        self._options = options
        self._settings = ExportOptions(**options)

    def setup(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        """Check before training that the export can be written.

        Args:
            trainer: The Trainer.
            pl_module: The module.
            stage: Only "fit" is checked.

        Raises:
            FileExistsError: There is something at `to`.
            ValueError: The Trainer has no ModelCheckpoint.
        """
        del pl_module
        # Lightning's quick trial of a script saves no checkpoint.
        if stage != "fit" or trainer.fast_dev_run:  # type: ignore[attr-defined] # A property of all releases.
            return
        if trainer.checkpoint_callback is None:
            raise ValueError("ExportBestCheckpoint needs a ModelCheckpoint, got `enable_checkpointing=False`")
        on_rank_zero(trainer, lambda: check_target(self._to, "", self._settings))

    def on_fit_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Export the best checkpoint.

        Args:
            trainer: The Trainer.
            pl_module: The module.

        Raises:
            RuntimeError: Rank 0 could not export; it raises the error itself, as `export_checkpoint` does.
            ValueError: No checkpoint was saved.
        """
        del pl_module
        if trainer.fast_dev_run:  # type: ignore[attr-defined] # As above.
            return
        best = getattr(trainer.checkpoint_callback, "best_model_path", "")
        if not best:
            raise ValueError("ModelCheckpoint must have saved a checkpoint to export, got none: train for longer")
        on_rank_zero(trainer, lambda: export_checkpoint(best, self._to, **self._options))
