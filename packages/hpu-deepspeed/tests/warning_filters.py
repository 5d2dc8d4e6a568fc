"""Warning filters for the rank processes of the tests."""

import os
import sys
import warnings

from packaging.version import Version

from hpu_core import frameworks

# Warnings about small test programs, and of older Lightning with newer torch.
_HARMLESS = (
    "`isinstance.treespec, LeafSpec.` is deprecated",
    "Checkpoint directory .* exists and is not empty",
    "Starting from v1.9.0, `tensorboardX` has been removed",
    "The `srun` command is available on your system but is not used",
    "The '.*_dataloader' does not have many workers",
    "The number of training batches .* is smaller than the logging interval",
    # The module leaves the optimizer to DeepSpeed's configuration.
    "`LightningModule.configure_optimizers` returned `None`",
    # Notes about ZeRO stage 3 checkpoints and files converted from them.
    "When saving the DeepSpeed Stage 3 checkpoint",
    "A single checkpoint file has been given",
    "You defined a `validation_step` but have no `val_dataloader`",
    "It is recommended to use `self.log",
    "Using `DistributedSampler` with the dataloaders",
    # torch's distributed optimizers, which Lightning imports for model averaging.
    "`torch.jit.*` is deprecated",
    # DeepSpeed's use of collectives that torch 2.13 deprecates, and its barrier.
    "`torch.distributed.* is deprecated",
    r"barrier\(\): using the device under current context",
    # DeepSpeed imports its CUDA operators without using them.
    "`torch.cuda.amp.custom_.wd.* is deprecated",
)


def install_warning_filters() -> None:
    """Turn unexpected warnings into errors, as in the pytest process."""
    if frameworks.current().version < Version("2.6.dev0"):
        # Older Lightning relies on `torch.load`'s default of torch before 2.6.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
    # -W on the command line takes precedence, for example when Lightning is older than torch.
    if sys.warnoptions:
        return
    warnings.simplefilter("error")
    for message in _HARMLESS:
        warnings.filterwarnings("ignore", message=message)
    # DeepSpeed's own use of torch is not under test.
    warnings.filterwarnings("ignore", module=r"deepspeed\.")
