"""Tests of the command."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpu_bucketing.cli import main

_DATA = """
import torch
from torch.utils.data import DataLoader, Dataset
from hpu_core import frameworks

LightningDataModule = frameworks.current().pytorch().LightningDataModule

class Texts(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        length = 900 if index % 10 == 0 else 100 + index % 20
        return {"input_ids": list(range(length)), "image": torch.zeros(3, 64 + index % 2 * 64), "label": 1}

class Module(LightningDataModule):
    def setup(self, stage):
        self.data = Texts()

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=6)
"""


_STREAM = """
import torch
from torch.utils.data import DataLoader, IterableDataset

class Stream(IterableDataset):
    def __iter__(self):
        return (torch.zeros(20 + index) for index in range(20))

def train_dataloader():
    return DataLoader(Stream(), batch_size=4)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """File with a data module."""
    path = tmp_path / "data_module.py"
    path.write_text(_DATA)
    return path


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


def test_plan_shows_curve_and_choice(file: Path) -> None:
    result = _run(file, "--align", 64)

    assert result.exit_code == 0, result.output
    assert "hpu-bucketing: 300 samples, batches of 6" in result.output
    assert "> 2" in result.output
    assert "Chosen: 128, 960" in result.output
    assert "plan = BucketPlan.from_boundaries([128, 960])" in result.output


def test_json_is_the_plan(file: Path) -> None:
    values = json.loads(_run(file, "--json", "--buckets", 1).output)

    assert values["dimensions"] == [[1024]]
    assert values["reason"] == "`num_buckets` is 1"


def test_keys_are_dimensions(file: Path) -> None:
    values = json.loads(_run(file, "--json", "--key", "input_ids", "--key", "image:1", "--align", 64).output)

    assert values["dimensions"] == [[128, 960], [64, 128]]


def test_function_returns_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "functions.py"
    path.write_text(
        "import torch\nfrom torch.utils.data import DataLoader, IterableDataset\n"
        "class Stream(IterableDataset):\n"
        "    def __iter__(self):\n        while True:\n            yield torch.ones(5)\n"
        "def train_dataloader():\n    return DataLoader(Stream(), batch_size=None)\n"
    )

    result = _run(path, "--samples", 7)

    assert "hpu-bucketing: 7 samples, batches of 1" in result.output
    assert "Chosen: 8" in result.output


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("", (), "must have one LightningDataModule or a function `train_dataloader`, got none: choose by --name"),
        ("", ("--name", "make"), "has no 'make'"),
        ("def train_dataloader(): return 5", (), "must be one DataLoader, got int"),
        (_DATA, ("--key", "tokens"), "`--key` must be one of input_ids, image, label, got 'tokens'"),
    ],
)
def test_errors_say_what_to_do(source: str, arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(source)

    result = _run(path, *arguments)

    assert result.exit_code == 2
    assert message in result.output


def test_estimated_time_is_of_the_whole_data_set(file: Path) -> None:
    """Not of the samples that were measured: the number of buckets depends on it."""
    options = ("--tokens-per-second", 5000, "--align", 1, "--json")
    seconds = {
        samples: json.loads(_run(file, *options, "--buckets", 1, "--samples", samples).output)["curve"][0]["seconds"]
        for samples in (300, 100)
    }

    # 25 s are the compilation.
    assert seconds[100] - 25 == pytest.approx(seconds[300] - 25, rel=0.05) == 300 * 900 / 5000


def test_stream_without_a_length_has_no_estimated_time(tmp_path: Path) -> None:
    path = tmp_path / "stream.py"
    path.write_text(_STREAM)

    cut = _run(path, "--tokens-per-second", 5000, "--samples", 10)
    assert (cut.exit_code, "`--tokens-per-second` needs the number of samples" in cut.output) == (2, True)
    assert _run(path, "--samples", 10).exit_code == 0
    assert _run(path, "--tokens-per-second", 5000).exit_code == 0


def test_default_alignment_is_not_one_that_it_warns_of(
    file: Path, recwarn: pytest.WarningsRecorder, tmp_path: Path
) -> None:
    """The samples have 20 to 40 elements."""
    path = tmp_path / "short.py"
    path.write_text(_STREAM)
    values = json.loads(_run(path, "--json").output)

    assert not recwarn.list
    assert all(limit % 32 == 0 for limit in values["dimensions"][0])
    assert json.loads(_run(file, "--json").output)["dimensions"][0][-1] == 1024
