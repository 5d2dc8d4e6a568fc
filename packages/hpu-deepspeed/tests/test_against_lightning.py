"""What happens to DeepSpeed's checkpoint folder, here and by Lightning's method: the same, or better, never silent."""

from pathlib import Path

from hpu_core import frameworks
from hpu_deepspeed import HPUDeepSpeedStrategy
from hpu_testing.folder_saves import outcomes

from .conftest import OnRanks
from .modules import Classifier, loader, trainer

TABLE = {
    "memory": ("a local folder of this name", "ValueError"),
    "file": ("a local folder of this name", "written"),
    "a link to elsewhere": ("followed", "followed"),
    "a link to the best": ("the best is written to", "replaced"),
    "a file in the way": ("FileExistsError", "replaced"),
    "more ranks before": ("its shards stay", "its shards are removed"),
    "files of others": ("stay", "stay"),
    "a full disk": ("an error, the old one is lost", "an error, the old one stays"),
}


def _save_over(folder: Path) -> list[dict[str, str]]:
    """Return what becomes of checkpoints that Lightning's method saves, and of ours."""
    strategy = HPUDeepSpeedStrategy(stage=2, failure_detection=False)
    run = trainer(strategy, devices=1, max_epochs=1)
    run.fit(Classifier(), loader(0, 1, 1))
    lightnings = frameworks.current().pytorch("strategies").DeepSpeedStrategy.save_checkpoint

    def save_as_lightning(path: "Path | str") -> None:
        lightnings(strategy, run._checkpoint_connector.dump_checkpoint(), path)

    found = []
    for name, save in (("lightning", save_as_lightning), ("here", run.save_checkpoint)):
        (folder / name).mkdir()
        found.append(outcomes(save, "checkpoint/zero_pp_rank_1_mp_rank_00_optim_states.pt", folder / name))
    return found


def test_table(on_ranks: OnRanks, tmp_path: Path) -> None:
    [(lightning, here)] = on_ranks(_save_over, tmp_path, count=1)

    assert {name: (lightning[name], here[name]) for name in here} == TABLE
