"""What each rank of the tests does before anything else."""

import os
import sys
import warnings

from packaging.version import Version

from hpu_core import frameworks

# What Lightning and torch say about programs of this size, and what old ones say on a new torch.
_HARMLESS = (
    "`isinstance.treespec, LeafSpec.` is deprecated",
    "Checkpoint directory .* exists and is not empty",
    "Starting from v1.9.0, `tensorboardX` has been removed",
    "The '.*_dataloader' does not have many workers",
    "The number of training batches .* is smaller than the logging interval",
    # What a module does that leaves the optimizer to DeepSpeed's configuration.
    "`LightningModule.configure_optimizers` returned `None`",
    # What Lightning has to say of each checkpoint of ZeRO stage 3, and of one that was made of it.
    "When saving the DeepSpeed Stage 3 checkpoint",
    "A single checkpoint file has been given",
    "You defined a `validation_step` but have no `val_dataloader`",
    "It is recommended to use `self.log",
    "Using `DistributedSampler` with the dataloaders",
    # torch's own optimizers for distributed training, which Lightning imports for model averaging.
    "`torch.jit.*` is deprecated",
    # DeepSpeed's collectives, by names that torch 2.13 deprecates, and a barrier of its own.
    "`torch.distributed.* is deprecated",
    r"barrier\(\): using the device under current context",
    # Its operators for CUDA, which it looks at and does not use.
    "`torch.cuda.amp.custom_.wd.* is deprecated",
)


def prepare() -> None:
    """Make an unexpected warning an error, as in the process of the tests."""
    if frameworks.current().version < Version("2.6.dev0"):
        # Older Lightning loads its checkpoints as torch before 2.6 did, and may run here on a newer torch.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    # Unless whoever runs the tests has said otherwise, as with a Lightning that is older than this torch.
    if sys.warnoptions:
        return
    warnings.simplefilter("error")
    for message in _HARMLESS:
        warnings.filterwarnings("ignore", message=message)
    # DeepSpeed's own use of torch is not what is tested.
    warnings.filterwarnings("ignore", module=r"deepspeed\.")
