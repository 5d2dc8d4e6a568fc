"""A process without a bridge, whatever is installed, and traces to read."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from .traces import Event, Writer

# What the developer's shell may have set.
_VARIABLES = ("HABANA_PROFILE", "HPU_CORE_FRAMEWORK", "PT_HPU_LAZY_MODE")


def pytest_configure(config: pytest.Config) -> None:
    """Let pass what Lightning and torch say about programs of this size."""
    for message in (
        "You defined a `validation_step` but have no `val_dataloader`",
        "The number of training batches .* is smaller than the logging interval",
        # Of schedules without a step to warm up, as some tests want them.
        "Profiler won't be using warmup",
        "Warning. Profiler clears events at the end of each cycle",
    ):
        config.addinivalue_line("filterwarnings", f"ignore:{message}")


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """The environment without what concerns profiles; put back as it was afterwards."""
    with mock.patch.dict(os.environ):
        for name in _VARIABLES:
            if "HPU_PROFILER_SIMULATE" not in os.environ:
                os.environ.pop(name, None)
        yield


@pytest.fixture
def writer() -> Writer:
    """Makes the events of a trace."""
    return Writer()


@pytest.fixture
def make_trace(tmp_path: Path, writer: Writer) -> Callable[..., Path]:
    """Writes a trace of events with the names of the card's lanes, and of what it says of itself."""

    def make(*events: Event, name: str = "fit-0-training.1.pt.trace.json", **about: Any) -> Path:
        path = tmp_path / name
        content = {"schemaVersion": 1, **about, "traceEvents": [*writer.names(), *events]}
        path.write_text(json.dumps(content))
        return path

    return make
