"""The card's batches against those of torchvision, from the folder that TORCHVISION_FOLDER names."""

import json
import os
import re
import sys
from pathlib import Path

from hpu_testing import Program, machine_env

_PROGRAM = Path(__file__).parent / "programs" / "compare.py"


def test_card_and_torchvision_agree(tmp_path: Path) -> None:
    """Same crops and flips in versions 1 and 2, and levels within a tolerance, by the simulated decoder, Pillow."""
    environment = machine_env(1, tmp_path / "cards", PYTHONPATH=os.environ["TORCHVISION_FOLDER"])
    with Program([sys.executable, str(_PROGRAM)], environment, tmp_path) as program:
        done = program.wait(300)
    assert done.code == 0, done.output
    [line] = re.findall("^RESULT (.*)", done.output, re.MULTILINE)
    found = json.loads(line)

    assert len(found) == 12
    for name, (images, largest, mean) in found.items():
        assert images == 12, name
        # Exactly Pillow's, but for a crop between pixels of the file, and for torch's own resize of tensors.
        limits = (20, 0.1) if "center" in name else (3, 0.1) if "tensors" in name else (0, 0)
        assert (largest <= limits[0], mean <= limits[1]) == (True, True), f"{name}: {largest}, {mean}"
