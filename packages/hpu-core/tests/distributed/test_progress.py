"""Signs of work of a host, and its line."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from hpu_core.distributed.progress import Progress


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
        if progress.line().endswith("in _wait"):
            break
    signs = [progress.signs() for _ in range(20)]

    assert len({*map(str, signs)}) == 1


def test_a_host_that_writes_shows_signs_of_work(hang: Callable[..., Progress], tmp_path: Path) -> None:
    progress = hang(lambda stop: _write(stop, tmp_path / "file"))
    signs = {str(progress.signs()) for _ in range(1000)}

    assert len(signs) > 1


def test_a_host_that_waits_may_look_again_and_again() -> None:
    progress = Progress()
    progress.wait = "barrier"
    first = progress.signs()
    assert progress.signs() == first


@pytest.mark.parametrize(("module", "works"), [("pdb", True), ("train", False)])
def test_a_host_in_a_debugger_shows_signs_of_work(module: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for its user for longer than any timeout."""
    # This thread reads its own counters, and so changes them.
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=OSError))
    progress, names = Progress(), {"__name__": module}
    exec("def interact(look): return [look() for _ in range(2)]", names)  # noqa: S102 - code in a module of that name.
    first, second = names["interact"](progress.signs)  # type: ignore[operator] # A function.

    assert (first != second) is works
