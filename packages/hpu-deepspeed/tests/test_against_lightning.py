"""What happens to DeepSpeed's checkpoint folder, here and by Lightning's method: the same, or better, never silent."""

from pathlib import Path

from hpu_core import frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.folder_saves import TABLE, outcomes

from .conftest import OnRanks
from .modules import Classifier, loader, trainer


def _save_over(folder: Path) -> dict[str, tuple[str, str]]:
    strategy = HPUDeepSpeedStrategy(stage=2, failure_detection=False)
    run = trainer(strategy, devices=1, max_epochs=1)
    run.fit(Classifier(), loader(0, 1, 1))
    lightnings = frameworks.current().pytorch("strategies").DeepSpeedStrategy.save_checkpoint

    def save_as_lightning(path: "Path | str") -> None:
        lightnings(strategy, run._checkpoint_connector.dump_checkpoint(), path)

    shard = "checkpoint/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    return outcomes(save_as_lightning, run.save_checkpoint, shard, folder)


def test_table(on_ranks: OnRanks, tmp_path: Path) -> None:
    assert on_ranks(_save_over, tmp_path, count=1) == [TABLE | {"a file in the way": ("FileExistsError", "replaced")}]
