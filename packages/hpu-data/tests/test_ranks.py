"""The loader on several ranks, in every strategy and in Fabric."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import OnRanks


def _train(folder: str, strategy: str, decode: str, ranks: int) -> dict[str, Any]:
    """Return what this rank sees in two epochs and a validation."""
    from hpu_data import ImageFolderDataModule

    from .modules import Classifier, evaluation, trainer, training

    module = ImageFolderDataModule(
        folder,
        folder,
        2,
        train_transforms=evaluation() if strategy == "hpu_ddp" else training(),
        val_transforms=evaluation(),
        num_workers=0,
        decode=decode,
    )
    model = Classifier()
    # The ranks of a pool live on after a training.
    trainer(strategy=strategy, devices=ranks, num_sanity_val_steps=0).fit(model, module)
    return {"seen": model.seen, "counted": model.counted, "devices": sorted(model.devices)}


@pytest.mark.parametrize(
    ("strategy", "decode"), [("hpu_ddp", "card"), ("hpu_fsdp", "auto"), ("hpu_deepspeed", "auto"), ("hpu_ddp", "host")]
)
def test_two_ranks_share_the_images(strategy: str, decode: str, tmp_path: Path, on_ranks: OnRanks) -> None:
    """Each image is trained on once an epoch, by another rank in the next, and counted once in validation."""
    from .modules import write_images

    folder = write_images(tmp_path / "images", 12)

    first, second = on_ranks(_train, str(folder), strategy, decode, 2, seconds=280)

    assert first["devices"] == second["devices"] == ["hpu"]
    assert sum(first["counted"] + second["counted"]) == 2 * 12
    assert len(first["seen"]) == len(second["seen"]) == 6
    if strategy == "hpu_ddp":
        # Without random transforms, sums of pixels tell which image it was.
        epochs: list[list[set[float]]] = [
            [{image for batch in rank["seen"][part] for image in batch} for rank in (first, second)]
            for part in (slice(3), slice(3, 6))
        ]
        assert [len(one | other) for one, other in epochs] == [12, 12]
        assert epochs[0][0] != epochs[1][0]


def _fabric(folder: str) -> list[list[int]]:
    """Return the labels of two epochs in Fabric."""
    import lightning.fabric as lf

    from hpu_data import DataLoader

    from .modules import image_folder, training

    fabric = lf.Fabric(accelerator="hpu", devices=2, strategy="hpu_ddp")
    fabric.launch()
    dataset = image_folder(Path(folder), training(), target_transform=None)
    dataset.samples = [(path, number) for number, (path, _) in enumerate(dataset.samples)]
    loader = fabric.setup_dataloaders(DataLoader(dataset, 3, True, drop_last=True))
    return [[label for _, labels in loader for label in labels.tolist()] for _ in range(2)]


def test_fabric_keeps_the_sampler(tmp_path: Path, on_ranks: OnRanks) -> None:
    from .modules import write_images

    first, second = on_ranks(_fabric, str(write_images(tmp_path / "images", 12)), seconds=200)

    for epoch in range(2):
        assert sorted(first[epoch] + second[epoch]) == list(range(12))
    assert set(first[0]) != set(first[1])
