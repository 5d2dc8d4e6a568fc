"""Detection of submodules whose input shapes change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from habana_frameworks.torch.utils.experimental import detect_recompilation_auto_model

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Model(torch.nn.Module):
    """Model whose first layer sees every length, and whose second one sees a mean of fixed shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3)
        self.second = torch.nn.Linear(3, 3)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(rows).mean(0))
        return result


def test_submodules_with_several_shapes_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The wrapper returns what the model does."""
    model = Model().to("hpu")
    wrapped = detect_recompilation_auto_model(model, "net")

    for length in (4, 4, 5, 6):
        rows = torch.ones(length, 3, device="hpu")
        assert torch.equal(wrapped(rows), model(rows))

    assert wrapped.analyse_dynamicity() == [("net", 8, 3), ("net.first", 8, 3)]
    assert capsys.readouterr().out == "net: 3 input shapes in 8 calls\nnet.first: 3 input shapes in 8 calls\n"


def test_the_table_can_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrapped = detect_recompilation_auto_model(Model(), csv_out=True)
    for length in (1, 2):
        wrapped(torch.ones(length, 3))

    wrapped.analyse_dynamicity()

    assert (tmp_path / "Model_dynamicity.csv").read_text(encoding="utf-8").splitlines() == [
        "module,calls,input shapes",
        "Model,2,2",
        "Model.first,2,2",
    ]
