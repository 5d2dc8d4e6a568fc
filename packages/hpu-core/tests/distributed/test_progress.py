"""Progress of a host: its place, its signs of work, and its line."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpu_core.distributed.progress import Progress, is_stopped


def test_a_step_is_entered_by_its_forward_pass_and_ends_with_its_optimizer_step() -> None:
    progress = Progress()
    places = []
    for scope in ("training step", "backward", "optimizer step"):
        with progress.step(scope):
            places.append((progress.scope, progress.steps, progress.has_entered))
    places.append((progress.scope, progress.steps, progress.has_entered))

    assert places == [
        ("training step", 0, True),
        ("backward", 0, True),
        ("optimizer step", 0, True),
        ("", 1, False),
    ]


def test_an_optimizer_step_that_runs_the_others_is_one_step() -> None:
    progress = Progress()
    with progress.step("optimizer step"), progress.step("training step"):
        assert progress.scope == "training step"

    assert (progress.steps, progress.has_entered, progress.scope) == (1, False, "")


@pytest.mark.parametrize("scope", ["setup", "evaluation step", "evaluation forward"])
def test_other_scopes_leave_a_rank_in_its_place(scope: str) -> None:
    progress = Progress()
    with progress.step(scope):
        assert not progress.has_entered


def test_a_step_that_fails_leaves_a_rank_before_it() -> None:
    progress = Progress()
    with pytest.raises(ValueError, match="invalid"), progress.step("optimizer step"):
        raise ValueError("invalid")

    assert (progress.steps, progress.has_entered, progress.scope) == (0, False, "")


def test_a_wait_is_counted_and_has_a_name() -> None:
    progress = Progress()
    with progress.waiting("barrier"):
        assert (progress.waits, progress.wait) == (1, "barrier")

    assert (progress.waits, progress.wait) == (1, None)


@pytest.fixture
def hang() -> Iterator[Callable[[Callable[[threading.Event], object]], Progress]]:
    """Return a function that runs another one on a thread until the end of the test, and returns its progress."""
    stop = threading.Event()
    threads = []

    def hang(function: Callable[[threading.Event], object]) -> Progress:
        found: list[Progress] = []
        started = threading.Event()

        def run() -> None:
            found.append(Progress())
            started.set()
            function(stop)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        started.wait()
        return found[0]

    yield hang
    stop.set()
    for thread in threads:
        thread.join()


def _wait(stop: threading.Event) -> None:
    stop.wait()


def _write(stop: threading.Event, path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while not stop.is_set():
            file.write(b"x")


def test_a_host_that_hangs_shows_no_sign_of_work(hang: Callable[..., Progress]) -> None:
    progress = hang(_wait)
    for _ in range(1000):
        if progress.describe()[0].endswith("in _wait"):
            break
    signs = [progress.signs() for _ in range(20)]

    assert len({*map(str, signs)}) == 1


def test_a_host_that_writes_shows_signs_of_work(hang: Callable[..., Progress], tmp_path: Path) -> None:
    progress = hang(lambda stop: _write(stop, tmp_path / "file"))
    signs = {str(progress.signs()) for _ in range(1000)}

    assert len(signs) > 1


def test_a_host_that_waits_may_look_again_and_again() -> None:
    progress = Progress()
    with progress.waiting("barrier"):
        first = progress.signs()
        assert progress.signs() == first


def test_a_debugger_is_seen() -> None:
    progress = Progress()
    seen: list[bool] = []
    exec(  # noqa: S102 - code in a module of that name.
        compile("def interact(look): look()", "pdb.py", "exec"), module := {"__name__": "pdb"}
    )
    module["interact"](lambda: seen.append(progress.describe()[1]))  # type: ignore[operator] # A function.

    assert seen == [True]
    assert not progress.describe()[1]


def test_a_process_that_runs_or_is_gone_is_not_stopped() -> None:
    assert not is_stopped(1 << 22)
    assert not is_stopped(threading.main_thread().native_id or 0)
