"""Tests that op lists of the user have the same effect with HMP and with our kernels, each in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).parent / "backends_program.py"
_FP32, _BF16 = "torch.float32", "torch.bfloat16"

# By the lists in backends_program.py. Their bf16 list has relu, which HMP supports and the bridge's lists do not.
_EXPECTED = {
    "a layer of the bf16 list": _BF16,
    "a method of the bf16 list": _BF16,
    "a Python operator of the bf16 list": _BF16,
    "an op that is not in the bridge's lists": _BF16,
    "a function imported before the plugin": _BF16,
    "a function of the fp32 list": _FP32,
    "a Python operator of the fp32 list": _FP32,
    "a layer of the fp32 list": _FP32,
    "an op of no list, from bfloat16": _BF16,
    "an op of the default lists only": _FP32,
    "an op with inputs of two dtypes": _FP32,
}


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize(
    ("release", "second"),
    [("1.11.0", "HMP accepts op lists once per process"), ("1.24.1", _FP32)],
    ids=["HMP", "kernels"],
)
def test_own_lists(release: str, second: str, tmp_path: Path) -> None:
    """HMP replaces functions once per process. Without it, each plugin's lists apply inside its own steps."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HPU_SIM_")}
    environment.update(HPU_SIM_RUNTIME_DIR=str(tmp_path), PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, str(_PROGRAM), release]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    dtypes, other, first = json.loads(result.stdout.splitlines()[-1])
    assert dtypes == _EXPECTED
    assert second in other
    assert first == _BF16
