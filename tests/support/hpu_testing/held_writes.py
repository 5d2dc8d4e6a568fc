"""Asynchronous saves that wait."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from hpu_core.checkpoints import saves


@contextlib.contextmanager
def held_writes() -> Iterator[threading.Event]:
    """Let asynchronous saves write once the event is set."""
    event, write = threading.Event(), saves.write_and_commit

    def write_later(*args: Any) -> None:
        assert event.wait(60)
        write(*args)

    with mock.patch.object(saves, "write_and_commit", write_later):
        yield event
