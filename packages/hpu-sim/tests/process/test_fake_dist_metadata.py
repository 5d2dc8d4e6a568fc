"""Metadata of the bridge's distribution."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import pytest

from hpu_sim.data import releases
from hpu_sim.device import runtime
from hpu_sim.process import fake_dist_metadata

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("name", ["habana-torch-plugin", "habana_torch_plugin", "Habana.Torch-Plugin"])
def test_the_version_is_the_build_of_the_release(name: str) -> None:
    """Any spelling of the name works."""
    assert importlib.metadata.version(name) == runtime.active_config().release.build


def test_the_release_sets_the_version(output_of: Callable[..., str]) -> None:
    program = "import torch, importlib.metadata as m; print(m.version('habana-torch-plugin'))"

    assert output_of(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.12.1") == releases.find("1.12.1").build


def test_it_is_listed_once_and_says_simulated(tmp_path: Path) -> None:
    """Programs such as transformers look up the distribution of a module. A search of folders does not find it."""
    names = [found.metadata["Name"] for found in importlib.metadata.distributions()]
    plugin = importlib.metadata.distribution("habana-torch-plugin")

    assert names.count("habana-torch-plugin") == 1
    assert "torch" in names
    assert importlib.metadata.packages_distributions()["habana_frameworks"] == ["habana-torch-plugin"]
    assert list(importlib.metadata.distributions(path=[str(tmp_path)])) == []
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("habana-torch-dataloader")
    assert "simulated" in plugin.metadata["Summary"]
    assert plugin.files is None
    with pytest.raises(FileNotFoundError, match="is simulated and has no files"):
        plugin.locate_file("habana_frameworks")


@pytest.mark.parametrize(("release", "declared"), [("1.18.0", False), ("1.19.0", True)])
def test_the_entry_point_came_with_1_19(release: str, declared: bool) -> None:
    """The bridge declares its entry point to torch from 1.19 on."""
    plugin = fake_dist_metadata._PluginDistribution(releases.find(release))

    assert any(point.group == "torch.backends" for point in plugin.entry_points) is declared


def test_a_release_without_a_known_build_has_no_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    finders: list[object] = []
    monkeypatch.setattr("sys.meta_path", finders)

    fake_dist_metadata.register(releases.Release("1.0.0", None, lazy=True, hmp=True))

    assert finders == []
