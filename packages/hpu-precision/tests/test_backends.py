"""Tests that op lists have the same effect with HMP and with our kernels.

Each backend runs in its own process.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("forks")

_PROGRAM = Path(__file__).parent / "backends_program.py"

# SynapseAI release.
_BACKENDS = {"HMP": "1.11.0", "last HMP": "1.12.1", "kernels": "1.24.1"}

Run = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs the program with a backend, once per backend, and returns its results."""

    @functools.cache
    def run(backend: str) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HPU_SIM_")}
        runtime_dir = tmp_path_factory.mktemp("runtime")
        environment.update(HPU_SIM_RUNTIME_DIR=str(runtime_dir), PYTHONPATH=os.pathsep.join(sys.path))
        command = [sys.executable, str(_PROGRAM), _BACKENDS[backend]]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return found

    return run


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.slow] if name == "last HMP" else []) for name in _BACKENDS]
)
def backend(request: pytest.FixtureRequest) -> str:
    """Return each backend."""
    name: str = request.param
    return name


_FP32, _BF16 = "torch.float32", "torch.bfloat16"

# By the lists in backends_program.py. Their bf16 list has relu, which HMP supports and the bridge's lists do not.
_EXPECTED = {
    "a function of the bf16 list": _BF16,
    "a layer of the bf16 list": _BF16,
    "a method of the bf16 list": _BF16,
    "a Python operator of the bf16 list": _BF16,
    "an op that is not in the bridge's lists": _BF16,
    "a function imported before the plugin": _BF16,
    "a layer made of listed ops": _BF16,
    "a function of the fp32 list": _FP32,
    "a Python operator of the fp32 list": _FP32,
    "a layer of the fp32 list": _FP32,
    "an op of no list, from float32": _FP32,
    "an op of no list, from bfloat16": _BF16,
    "an op of the default lists only": _FP32,
    "an op with inputs of two dtypes": _FP32,
    "an op with inputs of one dtype": _BF16,
    "an in-place op": _FP32,
    "the gradient of a parameter": _FP32,
    "outside the step": _FP32,
}


@pytest.mark.timeout(900)
def test_dtypes_are_the_same_with_every_backend(backend: str, run: Run) -> None:
    assert run(backend)["dtypes"] == _EXPECTED


def test_loss_and_gradients_are_bitwise_equal(backend: str, run: Run) -> None:
    assert run(backend)["loss and gradients"] == run("kernels")["loss and gradients"]


def test_hmp_is_used_if_the_release_has_it(backend: str, run: Run) -> None:
    assert run(backend)["hmp"] is (backend != "kernels")


def test_hmp_rejects_other_lists(run: Run) -> None:
    """HMP replaces functions once per process. Without it, each plugin's lists apply inside its own steps."""
    assert "HMP accepts op lists once per process" in run("HMP")["second lists"]
    assert run("kernels")["second lists"] == [_FP32, _BF16]
