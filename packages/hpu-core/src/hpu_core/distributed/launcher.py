"""Local launchers; the watchdog reports exited ranks."""

import atexit
import os
import signal
import subprocess
import sys
import time
from typing import Any, Final

from hpu_core._lightning import FabricSubprocessScriptLauncher, SubprocessScriptLauncher
from hpu_core.distributed.environment import LAUNCHER_PID
from hpu_core.distributed.failure_detection import describe_exit

__all__ = ["FabricHPUSubprocessScriptLauncher", "HPUSubprocessScriptLauncher", "LaunchedRanks"]

# How long launched ranks may take to exit after an error here; shorter than the grace period of the watchdog.
_EXIT_TIMEOUT: Final = 4.0
_POLL_INTERVAL: Final = 0.05


class LaunchedRanks(dict[int, subprocess.Popen[bytes]]):
    """Processes of the ranks that this process launched, by rank."""

    def exit_reasons(self) -> dict[int, str]:
        """Return why ranks have exited, such as "killed by signal 9"."""
        codes = {rank: process.poll() for rank, process in self.items()}
        return {rank: describe_exit(code) for rank, code in codes.items() if code is not None}


class _SubprocessMixin:
    """Mixin; list it before Lightning's launcher.

    Attributes:
        launched: The ranks that this process launched; the strategy's watchdog has the same object.
    """

    launched: LaunchedRanks
    cluster_environment: Any
    num_processes: int
    procs: list[subprocess.Popen[bytes]]

    def kill(self, signum: Any) -> None:
        """Send a signal to the launched ranks."""
        for process in self.launched.values():
            process.send_signal(signum)

    def _call_children_scripts(self) -> None:
        os.environ[LAUNCHER_PID] = str(os.getpid())
        try:
            super()._call_children_scripts()  # type: ignore[misc] # Lightning's launcher has it.
        finally:
            del os.environ[LAUNCHER_PID]
        first = self.cluster_environment.node_rank() * self.num_processes
        # Fabric of Lightning 2.0 keeps no list.
        self.launched.update(enumerate(getattr(self, "procs", ()), start=first + 1))
        # `launch` passes this list to Lightning's observer, which kills every rank within 5 seconds of a rank's exit:
        # too early for an error that names it. Neither the launcher nor a strategy has an option or a method to leave
        # the observer out.
        self.procs = []
        atexit.register(self._kill_after_error)

    def _kill_after_error(self) -> None:
        if getattr(sys, "last_value", None) is None:
            return
        deadline = time.monotonic() + _EXIT_TIMEOUT
        while time.monotonic() < deadline and any(process.poll() is None for process in self.launched.values()):
            time.sleep(_POLL_INTERVAL)
        self.kill(signal.SIGKILL)


class HPUSubprocessScriptLauncher(_SubprocessMixin, SubprocessScriptLauncher):
    """Launcher of the Trainer's ranks."""


class FabricHPUSubprocessScriptLauncher(_SubprocessMixin, FabricSubprocessScriptLauncher):
    """Launcher of Fabric's ranks."""
