"""What happens to a sharded checkpoint, here and by Lightning's method: the same, or better, and never silent."""

from pathlib import Path
from typing import Any

import pytest

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy
from hpu_testing.folder_saves import outcomes

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, make_trainer, train

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

TABLE = {
    "memory": ("a local folder of this name", "ValueError"),
    "file": ("a local folder of this name", "written"),
    "a link to elsewhere": ("followed", "followed"),
    "a link to the best": ("the best is written to", "replaced"),
    "a file in the way": ("replaced", "replaced"),
    "more ranks before": ("its shards stay", "its shards are removed"),
    "files of others": ("stay", "stay"),
    "a full disk": ("an error, the old one is lost", "an error, the old one stays"),
    "one file over a folder": ("files of others are removed", "IsADirectoryError"),
}


def _save_over(folder: Path) -> list[dict[str, str]]:
    """Return what becomes of checkpoints that Lightning's method saves, and of ours."""
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", failure_detection=False)
    trainer = make_trainer(strategy=strategy, devices=1, max_steps=1)
    train(ImageClassifier(optimizer="adamw"), trainer)
    lightnings = frameworks.current().pytorch("strategies").FSDPStrategy.save_checkpoint

    def save_as_lightning(path: "Path | str") -> None:
        lightnings(strategy, trainer._checkpoint_connector.dump_checkpoint(), path)

    found = []
    for name, save in (("lightning", save_as_lightning), ("here", trainer.save_checkpoint)):
        (folder / name).mkdir()
        rows = outcomes(save, "__1_0.distcp", folder / name)
        rows["one file over a folder"] = _save_one_file(save, strategy, folder / name / "full")
        found.append(rows)
    return found


def _save_one_file(save: Any, strategy: Any, path: Path) -> str:
    save(path)
    (path / "tokenizer.json").touch()
    strategy._state_dict_type, strategy.saves_sharded = "full", False
    try:
        save(path)
    except OSError as error:
        return type(error).__name__
    finally:
        strategy._state_dict_type, strategy.saves_sharded = "sharded", True
    return "replaced" if (path / "tokenizer.json").exists() else "files of others are removed"


def test_table(on_ranks: OnRanks, tmp_path: Path) -> None:
    [(lightning, here)] = on_ranks(_save_over, tmp_path, count=1)

    assert {name: (lightning[name], here[name]) for name in here} == TABLE
