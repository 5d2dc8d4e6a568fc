"""Test of the mixed precision example, on a release with HMP and one without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HPU_SIM = Path(sys.executable).with_name("hpu-sim")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "options"),
    [
        pytest.param("1.11.0", [], id="HMP, own lists"),
        pytest.param("1.24.1", ["--default-lists"], id="autocast, default lists"),
    ],
)
def test_bf16_reaches_the_accuracy_of_32_bit(release: str, options: list[str], tmp_path: Path) -> None:
    """The accuracy in bf16 is at least 95 %, and within 1 % of that in 32 bit."""
    command = [str(HPU_SIM), "run", "--devices", "1", str(ROOT / "examples" / "train_digits_bf16.py"), *options]
    environment = os.environ | {"HPU_SIM_RELEASE": release, "HPU_SIM_RUNTIME_DIR": str(tmp_path), "COLUMNS": "100"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line.strip("│").split("│") for line in result.stdout.splitlines() if line.startswith("│")]
    percent = {name.strip(): float(value.strip().rstrip("%")) for name, value in lines}
    assert percent["bf16-mixed"] >= 95
    assert percent["bf16-mixed"] == pytest.approx(percent["32-true"], abs=1)
