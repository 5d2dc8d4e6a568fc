"""Launchers of ranks in processes of their own."""

import functools
import os
import subprocess
from collections.abc import Callable
from typing import Any

from hpu_core._lightning import FabricSubprocessScriptLauncher, SubprocessScriptLauncher
from hpu_core.launcher_env import LAUNCHER_PID


class LauncherMixin:
    """Mixin that publishes an error of the launched function before Lightning calls hooks; list it first."""

    # Calls a function, and publishes its error.
    run: Callable[..., Any]

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Launch the ranks, unless another program has, and return the result of the function on this one."""
        launched: Any = super().launch(functools.partial(self.run, function), *args, **kwargs)  # type: ignore[misc] # Lightning's launcher has it.
        return launched


class _SubprocessMixin(LauncherMixin):
    """Mixin; list it before Lightning's launcher. Without `launched`, Lightning's observer ends the ranks."""

    launched: dict[int, subprocess.Popen[bytes]] | None = None
    cluster_environment: Any
    num_processes: int
    procs: list[subprocess.Popen[bytes]]

    def kill(self, signum: Any) -> None:
        """Send a signal to the launched ranks."""
        for process in self.procs if self.launched is None else self.launched.values():
            process.send_signal(signum)

    def _call_children_scripts(self) -> None:
        if self.launched is None:
            super()._call_children_scripts()  # type: ignore[misc] # Lightning's launcher has it.
            return
        os.environ[LAUNCHER_PID] = str(os.getpid())
        try:
            super()._call_children_scripts()  # type: ignore[misc] # As above.
        finally:
            del os.environ[LAUNCHER_PID]
        first = self.cluster_environment.node_rank() * self.num_processes
        # Fabric of Lightning 2.0 keeps no list.
        self.launched.update(enumerate(getattr(self, "procs", ()), start=first + 1))
        # `launch` passes this list to Lightning's observer, which kills every rank within 5 seconds of a rank's exit:
        # too early for an error that names it, and there is no option to leave the observer out.
        self.procs = []


class HPUSubprocessScriptLauncher(_SubprocessMixin, SubprocessScriptLauncher):
    """Launcher of the Trainer's ranks."""


class FabricHPUSubprocessScriptLauncher(_SubprocessMixin, FabricSubprocessScriptLauncher):
    """Launcher of Fabric's ranks."""
