"""litgpt's scripts, and PEFT with Lightning's Trainer."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hpu_testing import CompletedProgram, Program, machine_env

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., CompletedProgram]:
    """Return a function that runs a program in a folder of its own, on two devices."""

    def run(name: str, *arguments: str, **variables: str) -> CompletedProgram:
        command = [sys.executable, str(_PROGRAMS / name), *arguments]
        with Program(command, machine_env(2, tmp_path / "cards", **variables), tmp_path) as program:
            done = program.wait(300)
        assert done.code == 0, done.output
        return done

    return run


def test_litgpt_pretrains_and_resumes(run: Callable[..., CompletedProgram], tmp_path: Path) -> None:
    """Dynamo is off, because litgpt compiles with torch's default backend, which has no kernels for hpu."""
    trained = run("litgpt_pretrain.py", TORCHDYNAMO_DISABLE="1")
    resumed = run("litgpt_pretrain.py", TORCHDYNAMO_DISABLE="1", LITGPT_RESUME="1")

    losses = [float(loss) for loss in re.findall(r"step \d+ \| loss train: ([\d.]+)", trained.output)]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert "Resuming training from pretrained/step-00000008" in resumed.output
    assert (tmp_path / "pretrained/final/lit_model.pth").is_file()


def test_litgpt_trains_lora_adapters(run: Callable[..., CompletedProgram], tmp_path: Path) -> None:
    done = run("litgpt_lora.py")

    assert "step 6 | loss train: " in done.output
    assert (tmp_path / "finetuned/final/lit_model.pth.lora").is_file()
    assert (tmp_path / "finetuned/final/lit_model.pth").is_file()


def test_adapters_of_peft_train_the_same_with_every_strategy(run: Callable[..., CompletedProgram]) -> None:
    """Frozen and trained parameters are in one wrapped unit with FSDP."""
    losses = {}
    for strategy in ("hpu_ddp", "hpu_fsdp", "fsdp by block"):
        [line] = re.findall("^LOSSES (.*)", run("peft_lora.py", strategy).output, re.MULTILINE)
        losses[strategy] = json.loads(line)

    assert len(losses["hpu_ddp"]) == 8
    assert losses["hpu_fsdp"] == pytest.approx(losses["hpu_ddp"], abs=1e-5)
    assert losses["fsdp by block"] == pytest.approx(losses["hpu_ddp"], abs=1e-5)
