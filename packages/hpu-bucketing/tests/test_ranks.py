"""The loader on two ranks."""

from pathlib import Path
from typing import Any

from hpu_testing import RankPool


def _epoch() -> dict[str, Any]:
    """Return the batches of this rank, from a loader that was made before the process group."""
    import torch.distributed as dist

    from .modules import loader

    source = loader(shuffle=True)
    dist.init_process_group("hccl")
    shapes, samples = [], []
    for batch in source:
        shapes.append(tuple(batch["input_ids"].shape))
        samples += batch["index"].tolist()
    return {"shapes": shapes, "samples": samples, "length": len(source), "rank": dist.get_rank()}


def test_ranks_have_other_samples_of_the_same_bucket(tmp_path: Path) -> None:
    """The sampler reads the process group when the epoch begins."""
    with RankPool(2, tmp_path, lazy=False) as ranks:
        first, second = ranks.call(_epoch)

    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["shapes"] == second["shapes"]
    assert len(first["shapes"]) == first["length"] == second["length"] == 5
    assert set(first["samples"]) | set(second["samples"]) == set(range(40))
    assert not set(first["samples"]) & set(second["samples"])
