"""Figures of the generations, and a user's own."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest

from hpu_sim.prediction.hardware import fitting_bytes, hardware, set_figures, usable_memory, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GIB = 1 << 30


@pytest.fixture(autouse=True)
def published_figures() -> Iterator[None]:
    """Use the file's figures again after a test."""
    yield
    set_figures()


def test_a_file_has_figures_of_ones_own_card(tmp_path: Path) -> None:
    """They stand for cards of that generation."""
    path = tmp_path / "hardware.json"
    figures = {"memory_efficiency": 0.5, "roofline_share": 1.0, "launch_seconds": 2e-5}
    path.write_text(json.dumps({"generation": "GAUDI2", "figures": figures}))
    before = hardware("GAUDI3")
    set_figures([], path)

    assert (hardware("GAUDI2").memory_rate, hardware("GAUDI2").launch_seconds) == (2.46e12 / 2, 2e-5)
    assert hardware("GAUDI3") == before


def test_a_user_sets_figures() -> None:
    before = hardware("GAUDI2")
    set_figures(["launch_seconds=1e-5", "box=4", "memory_bytes=68719476736"])

    assert (hardware("GAUDI2").launch_seconds, hardware("GAUDI2").box) == (1e-5, 4)
    assert usable_memory("GAUDI2") < 64 << 30
    set_figures()
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


def test_a_job_that_fills_the_card_with_tensors_does_not_fit() -> None:
    assert verdict(usable_memory("GAUDI2"), usable_memory("GAUDI2")) == "no"


def test_between_the_ends_of_the_reserve_it_is_tight() -> None:
    assert verdict(60 * _GIB, usable_memory("GAUDI2")) == "fits"
    assert verdict(90 * _GIB, usable_memory("GAUDI2")) == "tight"


@pytest.mark.parametrize("generation", ["GAUDI", "GAUDI2", "GAUDI3"])
def test_the_largest_peak_that_fits_is_at_the_threshold(generation: str) -> None:
    largest = fitting_bytes(usable_memory(generation))

    assert verdict(largest, usable_memory(generation)) == "fits"
    assert verdict(largest + 1, usable_memory(generation)) == "tight"


def test_a_small_simulated_card_has_a_small_reserve() -> None:
    usable = usable_memory("GAUDI2", 1 << 20)

    assert verdict(usable * 8 // 10, usable) == "fits"
    assert verdict(usable, usable) == "no"
