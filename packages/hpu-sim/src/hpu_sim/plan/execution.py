"""Recording of a program, which runs as one rank of a job until its steps are known; no kernel runs."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpu_sim.plan import frameworks, patches
from hpu_sim.plan.errors import PlanComplete, PlanError
from hpu_sim.plan.recorder import PlanRecorder
from hpu_sim.prediction import torch_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpu_sim.plan.options import Options
    from hpu_sim.prediction.recording import Recording


def record(program: str | Path, arguments: Sequence[str], options: Options) -> Recording:
    """Run a program on a device without kernels until its steps are recorded; its process has no other task.

    Raises:
        PlanError: If the program cannot be planned; the message has its line.
    """
    path = str(program)

    def run() -> None:
        sys.argv = [path, *arguments]
        sys.path.insert(0, str(Path(path).resolve().parent))
        runpy.run_path(path, run_name="__main__")

    return record_call(run, options, (path, *arguments))


def record_call(call: Callable[[], object], options: Options, command: Sequence[str] = ()) -> Recording:
    """Call a function on a device without kernels until its steps are recorded.

    Args:
        call: Function.
        options: Options.
        command: What the recording names as the program.

    Raises:
        PlanError: If the program cannot be planned.
    """
    _require_torch()
    recorder = PlanRecorder(options, command)
    try:
        with (
            _rank_variables(options),
            patches.applied(recorder),
            frameworks.taken_over(recorder),
            recorder.used(),
        ):
            call()
    except PlanComplete:
        pass
    except SystemExit as error:
        if error.code not in {0, None}:
            raise PlanError(f"the program exited with {error.code!r} before its first training step") from error
    except Exception as error:
        raise patches.explain(error, recorder) from error
    return recorder.result()


def _require_torch() -> None:
    import torch

    if not torch_tools.is_supported():
        minimum = ".".join(map(str, torch_tools.MINIMUM_TORCH))
        raise PlanError(
            f"`hpu-sim plan` needs torch {minimum} or newer, for its tools for memory, got {torch.__version__}; plan "
            "in an environment with a newer torch"
        )


@contextlib.contextmanager
def _rank_variables(options: Options) -> Iterator[None]:
    """Set the variables that a launcher sets for a rank, so that no process is launched.

    There are no other ranks to watch either.
    """
    before = dict(os.environ)
    os.environ.update(
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE=str(options.devices),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
        NODE_RANK="0",
        GROUP_RANK="0",
        HPU_FAILURE_DETECTION="0",
        RANK="0",
        WORLD_SIZE=str(options.world_size),
    )
    if options.world_size > 1:
        # As the bridge does when it is imported, which it was before.
        os.environ["HLS_MODULE_ID"] = "0"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
