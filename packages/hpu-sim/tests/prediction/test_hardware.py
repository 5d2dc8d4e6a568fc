"""Figures of the generations, and a user's own."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.prediction.hardware import CALIBRATION_VARIABLE, hardware, set_figures, usable_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_file_has_figures_of_ones_own_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They stand for cards of that generation."""
    path = tmp_path / "hardware.json"
    figures = {"memory_efficiency": 0.5, "roofline_share": 1.0, "launch_seconds": 2e-5}
    path.write_text(json.dumps({"generation": "GAUDI2", "figures": figures}))
    before = hardware("GAUDI3")
    monkeypatch.setenv(CALIBRATION_VARIABLE, str(path))

    assert (hardware("GAUDI2").memory_rate, hardware("GAUDI2").launch_seconds) == (2.46e12 / 2, 2e-5)
    assert hardware("GAUDI3") == before


def test_a_user_sets_figures() -> None:
    before = hardware("GAUDI2")
    try:
        set_figures(["launch_seconds=1e-5", "box=4", "memory_bytes=68719476736"])

        assert (hardware("GAUDI2").launch_seconds, hardware("GAUDI2").box) == (1e-5, 4)
        assert usable_memory("GAUDI2") < 64 << 30
    finally:
        set_figures([])
    assert hardware("GAUDI2") == before


@pytest.mark.parametrize(
    ("setting", "message"), [("speed=1", "must name one of"), ("launch_seconds=fast", "must be a number")]
)
def test_a_setting_that_is_no_figure_is_refused(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        set_figures([setting])


def test_usable_memory_is_less_than_that_of_the_card() -> None:
    assert usable_memory("GAUDI2") / (1 << 30) == pytest.approx(94.62, abs=0.01)


def _entries(data: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures of a file, which are the objects with a source."""
    for name, each in data.items():
        if isinstance(each, dict):
            yield from [(name, each)] if "source" in each else _entries(each)
        elif isinstance(each, list) and name == "memory_reserves":
            yield from ((entry["name"], entry) for entry in each)


def test_every_figure_names_its_source_and_its_kind() -> None:
    data = json.loads(resources.files("hpu_sim.data").joinpath("hardware.json").read_text(encoding="utf-8"))

    figures = list(_entries({name: data[name] for name in ("common", "generations")}))

    assert len(figures) > 40
    for name, each in figures:
        assert each["kind"] in {"rule", "measurement", "statement", "prior"}, name
        assert set(each["source"].split(", ")) <= set(data["sources"]), name
        if {"range", "value"} <= set(each):
            assert min(each["range"]) <= each["value"] <= max(each["range"]), name
