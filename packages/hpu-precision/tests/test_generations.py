"""Tests of the precisions that each simulated Gaudi generation supports."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("forks")


# Prints the dtype of a linear layer's output, or the constructor's error, for each precision.
_PROGRAM = """
import torch
import hpu_sim
hpu_sim.activate(generation={generation!r}, release={release!r})
from hpu_precision import HPUPrecisionPlugin
data = torch.ones(4, 4, device="hpu")
for precision in {precisions!r}:
    try:
        plugin = HPUPrecisionPlugin(precision)
    except NotImplementedError as error:
        print("RESULT", error)
    else:
        with plugin.forward_context():
            print("RESULT", torch.nn.functional.linear(data, data).dtype)
"""


def _run(generation: str, release: str, precisions: list[object], runtime_dir: Path) -> list[str]:
    """Return the results of the precisions."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("HPU_SIM_")}
    environment.update(HPU_SIM_RUNTIME_DIR=str(runtime_dir), PYTHONPATH=os.pathsep.join(sys.path))
    program = _PROGRAM.format(generation=generation, release=release, precisions=precisions)
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return re.findall("^RESULT (.*)$", result.stdout, re.MULTILINE)


@pytest.mark.timeout(900)
def test_first_generation_has_bf16_only(tmp_path: Path) -> None:
    *errors, dtype = _run("GAUDI", "1.20.0", [16, "16-true", "fp8", "bf16-mixed"], tmp_path)
    reason = "needs Gaudi 2 or newer, and this machine has first-generation Gaudi cards"

    assert [reason in error for error in errors] == [True] * 3
    assert dtype == "torch.bfloat16"
