"""One rank of the tests: imports the functions that it is told and calls them, until its connection is closed.

Started by `conftest.Ranks` with the variables that make it a rank, as by a person who starts every process by hand.
"""

import importlib
import os
import sys
import traceback
import warnings
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from packaging.version import Version

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


def serve(connection: Connection) -> None:
    """Answer each call, a function's module, its name and its arguments, with what it returns or how it failed."""
    while True:
        try:
            module, name, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(module, name, arguments))


def _answer(module: str, name: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, getattr(importlib.import_module(module), name)(*arguments)
    except BaseException:  # noqa: BLE001 - SystemExit counts as well: the test shows it.
        return False, traceback.format_exc()


def main() -> None:
    """Start the simulator and serve."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import hpu_sim
    from hpu_core import frameworks

    if frameworks.current().version < Version("2.6.dev0"):
        # Older Lightning loads its checkpoints as torch before 2.6 did, and may run here on a newer torch.
        os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
        if frameworks.current().version < Version("2.1.dev0"):
            # Where there is a card, Lightning 2.0 imports the bridge's old mixed precision, which newer ones have not.
            frameworks.current().pytorch()
    hpu_sim.activate(devices=int(os.environ["HPU_SIM_DEVICES"]), release=os.environ.get("HPU_SIM_RELEASE"))
    # Unless whoever runs the tests has said otherwise, as with a Lightning that is older than this torch.
    if not sys.warnoptions:
        warnings.simplefilter("error")
        for message in _HARMLESS:
            warnings.filterwarnings("ignore", message=message)
        # DeepSpeed's own use of torch is not what is tested.
        warnings.filterwarnings("ignore", module=r"deepspeed\.")
    with Client(sys.argv[1], family="AF_UNIX") as connection:
        connection.send(int(os.environ["LOCAL_RANK"]))
        serve(connection)


if __name__ == "__main__":
    main()
