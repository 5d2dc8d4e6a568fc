"""csrc/autograd_threads.cpp: nothing of a backward pass is left in the device's thread when the interpreter ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

# Where the end of the interpreter is a race, each of these lost about every second one.
_PROGRAMS: Final = 6


@pytest.mark.slow
def test_a_program_that_ends_right_after_a_backward_pass_ends_well(
    start_python: Callable[..., subprocess.Popen[str]],
) -> None:
    """The autograd thread never needs the interpreter while it ends, which would abort the process."""
    # `nox -s tests` would spare the last collection.
    program = (
        "import atexit, gc, torch; atexit.unregister(gc.freeze); "
        "x = torch.ones(4, 4, device='hpu', requires_grad=True); (x @ x).sum().backward()"
    )
    processes = [start_python("-c", program, HPU_SIM_DEVICES="1", HPU_TESTING_TEARDOWN="1") for _ in range(_PROGRAMS)]
    try:
        codes = [process.wait(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    assert codes == [0] * _PROGRAMS


def test_waiting_for_the_thread_changes_no_gradient(statistics: Callable[[], dict[str, int]]) -> None:
    """The pass that is waited with neither copies data nor makes the host wait for the device."""
    native().drain_autograd_engine()

    counted = statistics()
    assert (counted["host_syncs"], counted["h2d_copies"], counted["d2h_copies"]) == (0, 0, 0)
