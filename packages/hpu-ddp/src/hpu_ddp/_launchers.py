"""Starting the processes of a training from one that must not take a card from them."""

from typing import Any

from hpu_core import bridge
from hpu_ddp._lightning import (
    ClusterEnvironment,
    FabricMultiProcessingLauncher,
    MultiProcessingLauncher,
)


class HPUMultiProcessingLauncher(MultiProcessingLauncher):
    """Starts one process per card with multiprocessing, for the Trainer."""

    @property
    def is_interactive_compatible(self) -> bool:
        """True: notebooks may start processes in any of these ways, if their classes stand in a module.

        Lightning allows only "fork" there, which the bridge does not support once it has opened a card.
        """
        return True

    def launch(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Start the processes, have each call `function`, and return what rank 0 returned.

        Raises:
            RuntimeError: This process, which trains nothing, has a card open.
        """
        check_no_card()
        return super().launch(function, *args, **kwargs)


class FabricHPUMultiProcessingLauncher(FabricMultiProcessingLauncher):
    """Starts one process per card with multiprocessing, for Fabric."""

    @property
    def is_interactive_compatible(self) -> bool:
        """True, as for the Trainer."""
        return True

    def launch(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Start the processes, have each call `function`, and return what rank 0 returned.

        Raises:
            RuntimeError: This process, which trains nothing, has a card open.
        """
        check_no_card()
        return super().launch(function, *args, **kwargs)


def check_no_card() -> None:
    """Check that this process, which is to start others and trains nothing itself, has no card.

    Raises:
        RuntimeError: It has one.
    """
    if bridge.is_open():
        raise RuntimeError(
            "this process has opened a card, and would keep it from the processes that it is to start: make tensors on "
            "'hpu' only inside of the training, for instance in `configure_model`, and restart the program or notebook"
        )


def check_is_rank(start_method: str, cluster: ClusterEnvironment | None) -> None:
    """Check that this process is going to train, so that it may open a card.

    Args:
        start_method: How it starts processes. With "popen" it is one of them itself.
        cluster: Lightning's idea of how processes are started.

    Raises:
        RuntimeError: It is not.
    """
    if start_method != "popen" and cluster is not None and not cluster.creates_processes_externally:
        raise RuntimeError(
            f"this process starts others with start_method={start_method!r} and has no card to make tensors on: make "
            "the module in `configure_model`, or inside of the function that Fabric launches"
        )
