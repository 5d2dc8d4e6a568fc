"""Multiprocessing launchers. The launching process does not open a device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpu_core import bridge, frameworks
from hpu_core.distributed.launcher import LauncherMixin
from hpu_ddp._lightning import FabricMultiProcessingLauncher, MultiProcessingLauncher


def check_trains(strategy: Any) -> None:
    """Raise a RuntimeError if this process launches the ranks and does not train."""
    start_method, cluster = strategy._start_method, strategy.cluster_environment  # noqa: SLF001 - Lightning's.
    if start_method != "popen" and cluster is not None and not cluster.creates_processes_externally:
        raise RuntimeError(
            f"this process launches the ranks (start_method={start_method!r}) and has no device of its own: "
            "create the module in `configure_model`, or in the function that Fabric launches"
        )


class _MultiProcessingMixin(LauncherMixin):
    """Mixin; list it before Lightning's launcher.

    Attributes:
        is_interactive_compatible: Whether the launcher works in notebooks. Lightning allows only "fork" there, which
            the bridge does not support after it has opened a device. The other start methods need classes and functions
            that can be imported from a module.
    """

    # hpu-doctor verify: forked-child-gets-no-numbers

    is_interactive_compatible = True

    def launch(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch the ranks, call `function` on each, and return the result of rank 0.

        Raises:
            RuntimeError: This process has opened a device.
        """
        if bridge.is_open():
            raise RuntimeError(
                "this process has opened a card and would keep it from the ranks that it launches: create tensors on "
                "'hpu' only inside of the training, for instance in `configure_model`, and restart the program or "
                "notebook"
            )
        # A spawned rank imports all that the program does, and would decide anew.
        with _environment(frameworks.OVERRIDE, frameworks.current().name):
            return super().launch(function, *args, **kwargs)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Return a context in which an environment variable has a value."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class HPUMultiProcessingLauncher(_MultiProcessingMixin, MultiProcessingLauncher):
    """The Trainer's multiprocessing launcher."""


class FabricHPUMultiProcessingLauncher(_MultiProcessingMixin, FabricMultiProcessingLauncher):
    """Fabric's multiprocessing launcher."""
