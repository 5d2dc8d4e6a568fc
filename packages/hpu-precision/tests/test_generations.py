"""What the simulated cards of each generation compute in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

_NEEDS_SCALER = pytest.mark.skipif(
    not hasattr(torch.amp, "GradScaler"), reason="Requires: torch 2.3, which has a gradient scaler for hpu"
)

# Prints the type of a linear layer's result, or the error of the constructor.
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


def _answer(generation: str, release: str, value: object, cards: Path) -> str:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HPU_SIM_")}
    environment.update(HPU_SIM_RUNTIME_DIR=str(cards), PYTHONPATH=os.pathsep.join(sys.path))
    program = _PROGRAM.format(generation=generation, release=release, value=value)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("generation", "release", "value", "expected"),
    [
        ("GAUDI", "1.20.0", 16, "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"),
        ("GAUDI", "1.20.0", "fp8", "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"),
        ("GAUDI", "1.20.0", "bf16-mixed", "torch.bfloat16"),
        ("GAUDI", "1.11.0", 16, "torch.bfloat16"),
        pytest.param("GAUDI3", "1.24.1", 16, "torch.float16", marks=_NEEDS_SCALER),
    ],
)
def test_a_generation_has_its_precisions(
    generation: str, release: str, value: object, expected: str, tmp_path: Path
) -> None:
    """The first one has float32 and bf16, the others fp16 and fp8, too; HMP's 16 bit is bf16 on all."""
    assert expected in _answer(generation, release, value, tmp_path)
