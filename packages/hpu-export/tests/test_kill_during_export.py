"""An export that is killed leaves nothing that looks finished."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hpu_core.checkpoints import folders
from hpu_export import export_checkpoint
from hpu_testing.kills import end_before_change, end_beyond, is_killed

_TENSORS = 4


def _value(out: Path) -> float:
    """Return the one value of an export, which must be whole; 0 without one."""
    if not out.exists():
        return 0
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    tensors = [tensor for file in set(index.values()) for tensor in load_file(out / file).values()]
    assert (out / "README.md").is_file()
    assert len(index) == len(tensors) == _TENSORS
    (value,) = torch.cat(tensors).unique().tolist()
    return float(value)


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("before", [0, 1])
def test_kills_leave_a_whole_export_or_none(before: int, tmp_path: Path) -> None:
    """Before each change of a folder, and while a file is written."""
    for value in (1, 2):
        torch.save({str(i): torch.full((1 << 12,), float(value)) for i in range(_TENSORS)}, tmp_path / f"{value}.ckpt")
    out, kills = tmp_path / "out", 0
    for moment in (partial(end_beyond, 20_000), *(partial(end_before_change, number) for number in range(20))):
        export = partial(export_checkpoint, to=out, max_shard_size="40KB", overwrite=True)
        if before:
            export(tmp_path / "1.ckpt")
        if not is_killed(moment, partial(export, tmp_path / "2.ckpt")):
            break
        kills += 1
        # As the next export does, after a kill between the two steps in which a folder is replaced.
        folders.take_up(out)
        assert _value(out) in {before, 2}
        if _value(out) == 2 and not before:
            break

    assert kills > 2
    assert _value(out) == 2
