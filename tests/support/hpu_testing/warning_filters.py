"""Warning filters of ranks and other processes that pytest's own filters do not reach."""

from __future__ import annotations

import sys
import warnings

# Regular expressions of warnings of Lightning and torch about small programs and deprecated APIs.
HARMLESS = (
    "`isinstance.treespec, LeafSpec.` is deprecated",
    "Checkpoint directory .* exists and is not empty",
    "Starting from v1.9.0, `tensorboardX` has been removed",
    "The `srun` command is available on your system but is not used",
    "The '.*_dataloader' does not have many workers",
    "The number of training batches .* is smaller than the logging interval",
    "You defined a `validation_step` but have no `val_dataloader`",
    "It is recommended to use `self.log",
    "Using `DistributedSampler` with the dataloaders",
    # From torch's distributed optimizers, which Lightning imports for model averaging.
    "`torch.jit.*` is deprecated",
    # Deprecated in torch 2.13; Lightning uses it for all-gather with gradients.
    "torch.distributed.nn.functional.all_gather is deprecated",
)


def raise_warnings(*messages: str, module: str | None = None) -> None:
    """Turn unexpected warnings into errors, as pytest does in its own process.

    Args:
        *messages: Regular expressions of further harmless warnings.
        module: Regular expression of the names of modules whose warnings are ignored.
    """
    # `python -W` takes precedence, for combinations of versions that warn more.
    if sys.warnoptions:
        return
    warnings.simplefilter("error")
    if module is not None:
        warnings.filterwarnings("ignore", module=module)
    for message in (*HARMLESS, *messages):
        warnings.filterwarnings("ignore", message=message)
