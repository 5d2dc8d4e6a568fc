"""Tests of the precisions that each simulated Gaudi generation supports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

_NEEDS_SCALER = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3 for torch.amp.GradScaler"
)

# Prints the dtype of a linear layer's output, or the constructor's error.
_PROGRAM = """
import torch
import hpu_sim
hpu_sim.activate(generation={generation!r}, release={release!r})
from hpu_precision import HPUPrecisionPlugin
try:
    plugin = HPUPrecisionPlugin({value!r})
except NotImplementedError as error:
    print(error)
else:
    data = torch.ones(4, 4, device="hpu")
    with plugin.forward_context():
        print(torch.nn.functional.linear(data, data).dtype)
"""


def _run(generation: str, release: str, value: object, runtime_dir: Path) -> str:
    """Return the program's last line of output."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HPU_SIM_")}
    environment.update(HPU_SIM_RUNTIME_DIR=str(runtime_dir), PYTHONPATH=os.pathsep.join(sys.path))
    program = _PROGRAM.format(generation=generation, release=release, value=value)
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("generation", "release", "value", "expected"),
    [
        ("GAUDI", "1.20.0", 16, "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"),
        ("GAUDI", "1.20.0", "16-true", "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"),
        ("GAUDI", "1.20.0", "fp8", "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"),
        ("GAUDI", "1.20.0", "bf16-mixed", "torch.bfloat16"),
        ("GAUDI", "1.11.0", 16, "torch.bfloat16"),
        pytest.param("GAUDI3", "1.24.1", 16, "torch.float16", marks=_NEEDS_SCALER),
    ],
)
def test_supported_precisions(generation: str, release: str, value: object, expected: str, tmp_path: Path) -> None:
    """The first generation supports neither fp16 nor fp8, and HMP's 16 bit is bf16 on all generations."""
    assert expected in _run(generation, release, value, tmp_path)
