"""Subprocess launchers of ranks on this machine, which leave it to the watchdog to name a rank that exits."""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hpu_core._lightning import FabricSubprocessScriptLauncher, SubprocessScriptLauncher
from hpu_core.distributed import excepthook
from hpu_core.distributed.environment import LAUNCHER_PID

__all__ = ["FabricHPUSubprocessScriptLauncher", "HPUSubprocessScriptLauncher", "LaunchedRanks"]

# How long launched ranks may take to exit after an error here; shorter than the grace period of the watchdog.
_EXIT_TIMEOUT: Final = 4.0
_POLL_INTERVAL: Final = 0.05

if TYPE_CHECKING:

    class _Launcher:
        """Part of Lightning's launchers that is used here."""

        procs: list[subprocess.Popen[bytes]]

        def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
        def _call_children_scripts(self) -> None: ...

else:
    _Launcher = object


class _HPULauncherMixin(_Launcher):
    """Mixin; list it before Lightning's launcher.

    Attributes:
        validate: Raises when the environment is incomplete, before a process is started.
        children: Processes of the local ranks from 1 on, in order.
    """

    validate: Callable[[], None]
    children: tuple[subprocess.Popen[bytes], ...] = ()

    def launch(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start the script once more for each further local rank, then call `function`."""
        self.validate()
        excepthook.install()
        return super().launch(function, *args, **kwargs)

    def kill(self, signum: Any) -> None:
        """Send a signal to the started ranks."""
        for child in self.children:
            child.send_signal(signum)

    def _call_children_scripts(self) -> None:
        os.environ[LAUNCHER_PID] = str(os.getpid())
        try:
            super()._call_children_scripts()
        finally:
            del os.environ[LAUNCHER_PID]
        # Lightning's observer, which is given this list, kills every rank within 5 seconds of a rank's exit: too early
        # for an error that names it. Fabric of Lightning 2.0 keeps no list.
        self.children, self.procs = tuple(getattr(self, "procs", ())), []
        atexit.register(self._kill_after_error)

    def _kill_after_error(self) -> None:
        if getattr(sys, "last_value", None) is None:
            return
        deadline = time.monotonic() + _EXIT_TIMEOUT
        while time.monotonic() < deadline and any(child.poll() is None for child in self.children):
            time.sleep(_POLL_INTERVAL)
        self.kill(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class LaunchedRanks:
    """Ranks that this process launched, by their global rank.

    Attributes:
        launcher: The launcher; None if another process launched the ranks.
        first: Global rank of this process.
    """

    launcher: _HPULauncherMixin | None = None
    first: int = 0

    def exit_codes(self) -> dict[int, int]:
        """Return the exit codes of the ranks that have exited."""
        codes = {rank: child.poll() for rank, child in self._children().items()}
        return {rank: code for rank, code in codes.items() if code is not None}

    def ranks(self) -> set[int]:
        """Return the ranks that this process launched."""
        return set(self._children())

    def kill(self, rank: int) -> None:
        """Kill a rank, if this process launched it and it still runs."""
        child = self._children().get(rank)
        if child is not None:
            child.kill()

    def _children(self) -> dict[int, "subprocess.Popen[bytes]"]:
        return dict(enumerate(self.launcher.children if self.launcher else (), start=self.first + 1))


class HPUSubprocessScriptLauncher(_HPULauncherMixin, SubprocessScriptLauncher):
    """Launcher of the Trainer's ranks."""


class FabricHPUSubprocessScriptLauncher(_HPULauncherMixin, FabricSubprocessScriptLauncher):
    """Launcher of Fabric's ranks."""
