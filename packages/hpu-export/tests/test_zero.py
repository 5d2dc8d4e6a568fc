"""Folders of DeepSpeed that are damaged or incomplete; test_live.py compares whole ones with the live model."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_export import export_checkpoint

# Two weights of seven and five elements, on two ranks.
_SHAPES = OrderedDict(first=torch.Size([7]), second=torch.Size([5]))
_FIRST, _SECOND = torch.arange(7.0), torch.arange(5.0) + 10


def _write(folder: Path, stage: int, tag: str = "step2", *, optimizer_keys: tuple[str, ...] = (), **model: Any) -> Path:
    """Write the files of two ranks in the layout that DeepSpeed's zero_to_fp32.py reads, without some keys."""
    (folder / tag).mkdir(parents=True, exist_ok=True)
    (folder / "latest").write_text(tag)
    flat = torch.cat([_FIRST, _SECOND])
    halves = [flat[:6], flat[6:]]
    quarters = [
        torch.cat([_FIRST[:4], _SECOND[:3]]),
        torch.cat([_FIRST[4:], torch.zeros(1), _SECOND[3:], torch.zeros(1)]),
    ]
    state = {"module": {"scale": torch.ones(2)}, "buffer_names": ["scale"], "param_shapes": [_SHAPES], "epoch": 1}
    state |= {"shared_params": {}, "frozen_param_shapes": None, "frozen_param_fragments": None, **model}
    for rank in range(2):
        content: dict[str, Any] = {"zero_stage": stage, "partition_count": 2}
        if stage == 3:
            torch.save(state, folder / tag / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
            # Two parts, as DeepSpeed makes of many parameters.
            content["fp32_flat_groups"] = [quarters[rank][:5], quarters[rank][5:]]
        else:
            torch.save(state, folder / tag / "mp_rank_00_model_states.pt")
            content["single_partition_of_fp32_groups"] = [halves[rank]]
        path = folder / tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        content = {name: value for name, value in content.items() if name not in optimizer_keys}
        torch.save({"optimizer_state_dict": content}, path)
    return folder


def _export(folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    return load_file(export_checkpoint(folder, folder.parent / "out.safetensors", **options))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_weights_are_joined_across_ranks(stage: int, tmp_path: Path) -> None:
    exported = _export(_write(tmp_path / "last.ckpt", stage))

    assert exported.keys() == {"first", "second", "scale"}
    assert torch.equal(exported["first"], _FIRST)
    assert torch.equal(exported["second"], _SECOND)


@pytest.mark.parametrize("stage", [1, 3])
def test_shared_weights_are_written_once(stage: int, tmp_path: Path) -> None:
    exported = _export(_write(tmp_path / "last.ckpt", stage, shared_params={"third": "first"}))
    assert exported.keys() == {"first", "second", "scale"}


def test_files_of_the_bfloat16_optimizer_are_joined(tmp_path: Path) -> None:
    """They have no stage."""
    exported = _export(_write(tmp_path / "last.ckpt", 1, optimizer_keys=("zero_stage",)))

    assert torch.equal(exported["first"], _FIRST)
    assert torch.equal(exported["second"], _SECOND)


def test_an_optimizer_that_is_not_divided_is_refused(tmp_path: Path) -> None:
    keys = ("zero_stage", "single_partition_of_fp32_groups")
    with pytest.raises(ValueError, match=r"must be a save of ZeRO 1 to 3 .* export its file"):
        _export(_write(tmp_path / "last.ckpt", 1, optimizer_keys=keys))


def test_a_tag_selects_a_save(tmp_path: Path) -> None:
    _write(tmp_path / "last.ckpt", 3, "step1")
    _write(tmp_path / "last.ckpt", 1, "step2")
    (tmp_path / "last.ckpt" / "step2" / "mp_rank_00_model_states.pt").unlink()

    assert _export(tmp_path / "last.ckpt", tag="step1")
    with pytest.raises(ValueError, match="must have a file"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "other")
    with pytest.raises(ValueError, match=r"`tag` must be a folder in .*, got 'step3'"):
        export_checkpoint(tmp_path / "last.ckpt", tmp_path / "other", tag="step3")


@pytest.mark.parametrize("stage", [1, 3])
def test_a_missing_ranks_file_is_one_sentence(stage: int, tmp_path: Path) -> None:
    folder = _write(tmp_path / "last.ckpt", stage)
    (folder / "step2" / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    with pytest.raises(ValueError, match="must have the files of 2 ranks, got 1"):
        _export(folder)


def test_files_of_another_save_are_refused(tmp_path: Path) -> None:
    folder = _write(tmp_path / "last.ckpt", 1)
    shapes = [OrderedDict(first=torch.Size([70]))]
    _write(tmp_path / "last.ckpt", 1, param_shapes=shapes)
    with pytest.raises(ValueError, match="must have 70 elements of group 0, got 12"):
        _export(folder)
    _write(tmp_path / "other.ckpt", 3, param_shapes=shapes)
    with pytest.raises(ValueError, match="must have 35 elements each, got fewer"):
        _export(tmp_path / "other.ckpt")


def test_tensor_parallel_files_are_refused(tmp_path: Path) -> None:
    folder = _write(tmp_path / "last.ckpt", 1)
    (folder / "step2" / "mp_rank_01_model_states.pt").write_bytes(b"")
    with pytest.raises(ValueError, match="of tensor parallelism, which is not supported"):
        _export(folder)


def test_a_truncated_file_is_one_sentence(tmp_path: Path) -> None:
    folder = _write(tmp_path / "last.ckpt", 1)
    file = folder / "step2" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"optim_states.pt' must be a whole file of torch.save"):
        _export(folder)
