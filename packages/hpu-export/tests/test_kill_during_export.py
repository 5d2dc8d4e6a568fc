"""An export that is killed leaves nothing that looks finished."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "kill_during_export.py"


@pytest.mark.slow
def test_fifty_kills_leave_a_whole_export_or_none(tmp_path: Path) -> None:
    """The program checks each; the moments are random."""
    command = [sys.executable, str(PROGRAM), str(tmp_path), "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    results = Counter(json.loads(done.stdout))
    assert results.total() == 50
    assert results["killed, nothing"] > 5, results
