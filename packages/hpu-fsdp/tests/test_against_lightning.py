"""What happens to a sharded checkpoint, here and by Lightning's method: the same, or better, and never silent."""

from pathlib import Path
from typing import Any

import pytest

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy
from hpu_testing.folder_saves import TABLE, outcomes

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, make_trainer, train

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")


def _save_over(folder: Path) -> dict[str, tuple[str, str]]:
    strategy = HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", failure_detection=False)
    trainer = make_trainer(strategy=strategy, devices=1, max_steps=1)
    train(ImageClassifier(optimizer="adamw"), trainer)
    lightnings = frameworks.current().pytorch("strategies").FSDPStrategy.save_checkpoint

    def save_as_lightning(path: "Path | str") -> None:
        lightnings(strategy, trainer._checkpoint_connector.dump_checkpoint(), path)

    found = outcomes(save_as_lightning, trainer.save_checkpoint, "__1_0.distcp", folder)
    full = [
        _save_one_file(save, strategy, folder / str(number))
        for number, save in enumerate((save_as_lightning, trainer.save_checkpoint))
    ]
    return found | {"one file over a folder": (full[0], full[1])}


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
    one_file = {"one file over a folder": ("files of others are removed", "IsADirectoryError")}

    assert on_ranks(_save_over, tmp_path, count=1) == [TABLE | one_file]
