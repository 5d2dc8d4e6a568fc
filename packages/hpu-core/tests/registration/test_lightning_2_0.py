"""Importing Lightning 2.0 beside a bridge without HMP."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from packaging.version import Version

from hpu_core import bridge, frameworks
from hpu_core.registration import _lightning_2_0

from .programs import output


@pytest.mark.parametrize(("hmp", "expected"), [(None, False), (ModuleType("hmp"), True)])
def test_lightnings_own_card_is_there_where_hmp_is(
    hmp: ModuleType | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no HMP, Lightning does not get to import it."""
    monkeypatch.setattr(bridge, "hmp", lambda: hmp)
    module = ModuleType("lightning.pytorch.accelerators.hpu")
    vars(module)["_HPU_AVAILABLE"] = True

    _lightning_2_0.spare_hmp(module)

    assert vars(module)["_HPU_AVAILABLE"] is expected


@pytest.mark.parametrize("content", [{}, {"_HPU_AVAILABLE": False}], ids=["another module", "no card"])
def test_without_a_card_nobody_asks_for_hmp(content: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the bridge loaded for that."""
    monkeypatch.setattr(bridge, "hmp", lambda: pytest.fail("asked"))
    module = ModuleType("lightning.pytorch.accelerators.hpu")
    vars(module).update(content)

    _lightning_2_0.spare_hmp(module)

    assert {name: vars(module)[name] for name in content} == content


@pytest.mark.skipif(frameworks.current().version >= Version("2.1"), reason="Requires: Lightning 2.0")
@pytest.mark.skipif(Version(torch.__version__) < Version("2.5"), reason="Requires: torch 2.5, which loads backends")
def test_lightning_2_0_trains_without_hmp(tmp_path: Path) -> None:
    """With nothing of ours imported."""
    program = f"""
import {frameworks.current().pytorch().__name__} as pl
trainer = pl.Trainer(accelerator="hpu", devices=1, logger=False, enable_checkpointing=False)
print(type(trainer.strategy).__name__, trainer.strategy.root_device.type)
"""

    assert output(program, tmp_path, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.24.1") == ["SingleHPUStrategy hpu"]


@pytest.mark.skipif(frameworks.current().version >= Version("2.1"), reason="Requires: Lightning 2.0")
def test_a_simulator_that_starts_late_has_no_hmp_either(tmp_path: Path) -> None:
    """Lightning is imported for our classes, after a card has come that was not there when torch was imported."""
    program = """
import torch, hpu_sim
hpu_sim.activate(release="1.24.1")
from hpu_core import HPUAccelerator
print(HPUAccelerator.is_available())
"""

    assert output(program, tmp_path) == ["True"]
