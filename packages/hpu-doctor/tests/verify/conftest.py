"""Runs a registered assumption on a simulated card."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpu_doctor.verify import register, runner

# Tests, and the server of the mutations, import modules of this folder.
sys.path.insert(0, str(Path(__file__).parent))

from one_assumption import TARGET

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpu_doctor.verify.runner import Outcome


@pytest.fixture
def try_program(tmp_path: Path) -> Callable[..., Outcome]:
    """Return a function that runs a registered assumption on a simulated card, in a process of its own."""

    def run(name: str, **options: Any) -> Outcome:
        assumption = register.find(name)
        environ = {**os.environ, "HPU_SIM_DEVICES": "1"}
        (outcome,) = runner.run([assumption], TARGET, tmp_path, environ, **options)
        return outcome

    return run
