"""A trace of a card beside a predicted one."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hpu_sim.cli import main
from hpu_sim.plan.diff import compare
from hpu_sim.prediction.chrome_trace import trace_of_recording
from hpu_sim.prediction.recording import Operation, Product, Recording, StepRecording

if TYPE_CHECKING:
    from pathlib import Path


_PRODUCTS = (Product(1, 2048, 2048, 2048),)


def _plan(path: Path) -> Path:
    """Write the predicted trace of a product and a softmax in one graph."""
    operations = [
        Operation("aten.mm", "forward", "", "bfloat16", 1 << 34, _PRODUCTS, ((0, 1 << 23),), ((1, 8),), 0),
        Operation("aten._softmax", "forward", "", "bfloat16", 0, (), ((1, 1 << 23),), ((2, 1 << 23),), 0),
    ]
    path.write_text(
        json.dumps(trace_of_recording(Recording((), 0, 1, 8, lazy=True, steps=[StepRecording(operations)]), "GAUDI2"))
    )
    return path


def _kernel(name: str, lane: int, start: float, microseconds: float, recipe: int = 7) -> dict[str, Any]:
    args = {"recipeId": recipe, "dataType": "bf16"}
    return {
        "ph": "X", "cat": "Kernel", "name": name, "pid": 0, "tid": lane, "ts": start, "dur": microseconds, "args": args,
    }  # fmt: skip


def _card(path: Path) -> Path:
    """Write a trace of two steps as the bridge 1.19 does: products of 100 us, softmax of 900 us."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "/device:HPU:0"}},
        *({"ph": "X", "name": f"ProfilerStep#{step}", "pid": 9, "tid": 9, "ts": step, "dur": 1} for step in (1, 2)),
    ]
    for step in (0, 1):
        events += [
            _kernel("gemm", 6000, 2000 * step, 100),
            _kernel("softmax_fwd_bf16_12", 7031, 2000 * step + 100, 900),
        ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


def test_operators_engines_and_graphs_are_compared_per_step(tmp_path: Path) -> None:
    found = {(each.kind, each.name): each for each in compare(_card(tmp_path / "a.gz"), _plan(tmp_path / "b.json"))}

    assert found["operator", "mm (MME)"].card == pytest.approx(100e-6)
    assert found["operator", "softmax (TPC)"].card == pytest.approx(900e-6)
    assert found["engine", "TPC"].card == pytest.approx(900e-6)
    assert found["graph", "1"].card == pytest.approx(1000e-6)
    assert all(each.predicted > 0 for each in found.values())


def test_the_largest_difference_comes_first(tmp_path: Path) -> None:
    card, plan = _card(tmp_path / "card.json.gz"), _plan(tmp_path / "plan.json")

    printed = CliRunner().invoke(main, ["plan", "diff", str(card), str(plan)])
    as_json = CliRunner().invoke(main, ["plan", "diff", "--json", str(card), str(plan)])

    assert printed.exit_code == 0, printed.output
    assert printed.output.index("softmax (TPC)") < printed.output.index("mm (MME)")
    rows = json.loads(as_json.output)
    assert rows["schema_version"]
    operators = [each for each in rows["differences"] if each["kind"] == "operator"]
    assert [each["name"] for each in operators] == ["softmax (TPC)", "mm (MME)"]


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    card = _card(tmp_path / "card.json.gz")
    (tmp_path / "other.json").write_text("[]")

    for path, message in ((card, "was not predicted"), (tmp_path / "other.json", "no trace")):
        result = CliRunner().invoke(main, ["plan", "diff", str(card), str(path)])
        assert (result.exit_code, message in " ".join(result.output.split())) == (2, True)
