"""What each rank of the tests does before anything else."""

import sys
import warnings

# What Lightning and torch say about programs of this size, and what old ones say on a new torch.
_HARMLESS = (
    "`isinstance.treespec, LeafSpec.` is deprecated",
    "Checkpoint directory .* exists and is not empty",
    "Starting from v1.9.0, `tensorboardX` has been removed",
    "The '.*_dataloader' does not have many workers",
    "The number of training batches .* is smaller than the logging interval",
    "You defined a `validation_step` but have no `val_dataloader`",
    "It is recommended to use `self.log",
    "Using `DistributedSampler` with the dataloaders",
    # torch's own optimizers for distributed training, which Lightning imports for model averaging.
    "`torch.jit.*` is deprecated",
    # Lightning gathers with gradients by a function that torch 2.13 deprecates.
    "torch.distributed.nn.functional.all_gather is deprecated",
)


def prepare() -> None:
    """Make an unexpected warning an error, as in the process of the tests."""
    # Unless whoever runs the tests has said otherwise, as with a Lightning that is older than this torch.
    if sys.warnoptions:
        return
    warnings.simplefilter("error")
    for message in _HARMLESS:
        warnings.filterwarnings("ignore", message=message)
