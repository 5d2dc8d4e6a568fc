"""ModelCheckpoint with sharded checkpoints, which leaves the same names as Lightning with one file on the CPU."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from hpu_core import frameworks
from hpu_fsdp import HPUFSDPStrategy

from .conftest import OnRanks
from .modules import UNITS, ImageClassifier, make_trainer, train

# torch's checkpoints use its own deprecated names.
pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

_pytorch = frameworks.current().pytorch
_OPTIONS: dict[str, dict[str, Any]] = {
    "top 2": {"monitor": "step", "mode": "max", "save_top_k": 2, "save_last": True},
    "all": {"save_top_k": -1, "save_last": True},
    "link": {"save_top_k": -1, "save_last": "link"},
}


def _fit(folder: Path, options: dict[str, Any], trainer_options: dict[str, Any]) -> dict[str, Any]:
    """Train and resume; return names and links of the checkpoints, and where "last" and "best" go on."""
    callback = _pytorch("callbacks").ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, **options)

    def fit(steps: int, ckpt_path: str | None = None) -> Any:
        trainer = make_trainer(
            limit_train_batches=1,
            max_steps=steps,
            callbacks=[callback],
            enable_checkpointing=True,
            **{name: value() for name, value in trainer_options.items()},
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Checkpoint directory .* exists and is not empty|.*using checkpoint path|Be aware"
            )
            train(ImageClassifier(optimizer="adamw"), trainer, ckpt_path=ckpt_path)
        return trainer

    fit(3)
    names = {path.name: path.is_symlink() and path.readlink().name for path in sorted(folder.iterdir())}
    resumed = {path: (Path(trainer.ckpt_path).name, trainer.global_step) for path, trainer in _resumed(fit)}
    return {"names": names, "resumed": resumed, "at the end": sorted(path.name for path in folder.iterdir())}


def _resumed(fit: Any) -> "list[tuple[str, Any]]":
    return [(path, fit(steps, path)) for steps, path in ((4, "best"), (5, "last"))]


def _fit_sharded(folder: Path, name: str, async_save: bool) -> dict[str, Any]:
    def strategy() -> HPUFSDPStrategy:
        return HPUFSDPStrategy(auto_wrap_policy=set(UNITS), state_dict_type="sharded", async_save=async_save)

    return _fit(folder / name, _OPTIONS[name], {"strategy": strategy})


@pytest.mark.parametrize("async_save", [False, True])
@pytest.mark.parametrize("name", _OPTIONS)
def test_names_and_resumed_steps_equal_lightnings(
    name: str, async_save: bool, on_ranks: OnRanks, tmp_path: Path
) -> None:
    cpu = {"accelerator": lambda: "cpu", "strategy": lambda: "auto", "devices": lambda: 1}
    expected = _fit(tmp_path / "cpu", _OPTIONS[name], cpu)

    for found in on_ranks(_fit_sharded, tmp_path, name, async_save, seconds=120):
        assert found == expected
