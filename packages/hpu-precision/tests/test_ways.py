"""The user's op lists mean the same by HMP, by lists that the bridge reads, and by our kernels: each in a process."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).parent / "ways.py"

_WAYS = {
    "HMP": ("1.11.0", "loaded"),
    "late HMP": ("1.12.1", "loaded"),
    "read by the bridge": ("1.24.1", "not loaded"),
    "kernels": ("1.24.1", "loaded"),
}

Run = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs tests/ways.py in one of the ways and returns what it found; each way once."""

    @functools.cache
    def run(way: str) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HPU_SIM_")}
        cards = tmp_path_factory.mktemp("cards")
        environment.update(HPU_SIM_RUNTIME_DIR=str(cards), PYTHONPATH=os.pathsep.join(sys.path))
        command = [sys.executable, str(_PROGRAM), *_WAYS[way]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {**found, "messages": done.stderr.partition("the first lists have been used")[0]}

    return run


@pytest.fixture(params=_WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """Each of the ways."""
    name: str = request.param
    return name


_FULL, _LOW = "torch.float32", "torch.bfloat16"

# The lists of ways.py, in which relu, known to HMP but not to the bridge's lists, is an op for bf16.
_EXPECTED = {
    "a function of the bf16 list": _LOW,
    "a layer of the bf16 list": _LOW,
    "a method of the bf16 list": _LOW,
    "an operator sign of the bf16 list": _LOW,
    "an op that the bridge's lists do not know": _LOW,
    "a function that was there before the plugin": _LOW,
    "a layer made of listed ops": _LOW,
    "a function of the fp32 list": _FULL,
    "an operator sign of the fp32 list": _FULL,
    "a layer of the fp32 list": _FULL,
    "an op of no list, from float32": _FULL,
    "an op of no list, from bfloat16": _LOW,
    "an op that the default lists have, of no list": _FULL,
    "an op with inputs of two types": _FULL,
    "an op with inputs of one type": _LOW,
    "an op that writes to a tensor": _FULL,
    "the gradient of a parameter": _FULL,
    "outside the step": _FULL,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", _EXPECTED)
def test_the_lists_mean_the_same(what: str, way: str, run: Run) -> None:
    """Functions, methods, layers, operator signs and gradients have the same type in every way."""
    assert run(way)["dtypes"][what] == _EXPECTED[what]


def test_everything_is_expected(way: str, run: Run) -> None:
    """Nothing that the program looks at goes without a test above."""
    assert set(run(way)["dtypes"]) == set(_EXPECTED)


def test_the_numbers_are_the_same(way: str, run: Run) -> None:
    """The loss and the gradient of a small network equal each other bit for bit."""
    assert run(way)["numbers"] == run("kernels")["numbers"]


@pytest.mark.parametrize(
    ("way", "hmp", "alone"),
    [
        ("HMP", True, True),
        ("late HMP", True, True),
        ("read by the bridge", False, False),
        ("kernels", False, True),
    ],
)
def test_the_way_is_the_releases(way: str, hmp: bool, alone: bool, run: Run) -> None:
    """HMP casts where the release has it, the bridge where it could read the lists, and our kernels elsewhere."""
    assert (run(way)["hmp"], run(way)["alone"]) == (hmp, alone)


def test_only_the_rest_needs_kernels_where_the_bridge_reads_the_lists(run: Run) -> None:
    """Of the lists, only what the bridge's lists do not know is left to us."""
    assert run("read by the bridge")["ruled"] == ["relu"]


@pytest.mark.parametrize(("way", "says"), [("read by the bridge", False), ("kernels", True)])
def test_lists_that_came_too_late_for_the_bridge_are_told(way: str, says: bool, run: Run) -> None:
    """Only where the plugin itself has to apply the lists, it says so."""
    assert ("hpu-precision applies the op lists by kernels of its own" in run(way)["messages"]) is says


def test_nothing_is_left_behind(way: str, run: Run) -> None:
    """The files of the lists go with the process."""
    assert not any(Path(path).exists() for path in run(way)["files"])


def test_hmp_refuses_other_lists(run: Run) -> None:
    """HMP replaces functions once, so a second set of lists is an error that says what to do."""
    assert "HMP takes op lists once in a process" in run("HMP")["second lists"]


@pytest.mark.parametrize("way", ["read by the bridge", "kernels"])
def test_other_lists_take_their_place(way: str, run: Run) -> None:
    """Without HMP, a plugin with other lists has its way inside its steps, and the first one inside its own again."""
    assert run(way)["second lists"] == [_FULL, _LOW]
