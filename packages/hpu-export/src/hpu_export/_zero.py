"""Folders of DeepSpeed's ZeRO, stages 1 to 3: the fp32 weights of the optimizer, which DeepSpeed shards.

The layout is the one that DeepSpeed's own zero_to_fp32.py reads. That program unpickles any object and, at stages 1 and
2, holds all weights in memory.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from hpu_export import _torch, _torch_file
from hpu_export._lazy_tensor import Checkpoint, LazyTensor, get_run_info

_LATEST: Final = "latest"
_MODEL: Final = "_model_states.pt"
_OPTIMIZER: Final = "_optim_states.pt"
_RANK: Final = re.compile(r"zero_pp_rank_(\d+)_")
_SHARDED: Final = 3
# Keys of the fp32 weights, one of which each save has.
_PARTITIONS: Final = frozenset({"single_partition_of_fp32_groups", "fp32_flat_groups"})


def is_part(name: str) -> bool:
    """Return whether a file of this name belongs to such a folder."""
    return name == _LATEST or name.endswith((_MODEL, _OPTIMIZER))


def open_folder(path: Path, *, tag: str | None, weights_only: bool) -> Checkpoint:
    """Return the checkpoint in a folder.

    Args:
        path: Folder with the file `latest`, or one with the files of the ranks.
        tag: Name of the save; by default the one that `latest` names.
        weights_only: As in `torch.load`.

    Raises:
        pickle.UnpicklingError: `weights_only` refuses an object.
        ValueError: Files are missing, damaged or of another checkpoint.
    """
    folder = _tagged_folder(path, tag)
    models = _load_ranks(folder, _MODEL, weights_only=weights_only)
    if not models:
        raise ValueError(f"the folder must have a file *{_MODEL}, got {str(folder)!r} without")
    model = models[0]
    optimizers = [state["optimizer_state_dict"] for state in _load_ranks(folder, _OPTIMIZER, weights_only=weights_only)]
    if not optimizers:
        raise ValueError(f"the folder must have the files *{_OPTIMIZER} of all ranks, got {str(folder)!r} without")
    if _PARTITIONS.isdisjoint(optimizers[0]):
        raise ValueError(
            f"the folder must be a save of ZeRO 1 to 3 or of bfloat16 weights with float32 ones, got {str(folder)!r}, "
            f"whose optimizer has {', '.join(sorted(map(str, optimizers[0])))}: export its file *{_MODEL}"
        )
    counts = optimizers[0]["partition_count"]
    ranks = max(counts) if isinstance(counts, list) else counts
    # DeepSpeed's BF16_Optimizer writes no stage, and divides each group as stage 1 does.
    stage = int(optimizers[0].get("zero_stage", 1))
    if len(optimizers) != ranks or (stage == _SHARDED and len(models) != ranks):
        raise ValueError(
            f"the folder must have the files of {ranks} ranks, got {len(optimizers)} *{_OPTIMIZER} and {len(models)} "
            f"*{_MODEL} in {str(folder)!r}: some are missing, or of another save"
        )
    # At stage 3 the module's parameters are empty. Below it has all, also frozen ones, in the dtype of training.
    names = model["buffer_names"] if stage == _SHARDED else model["module"]
    weights = {name: LazyTensor.from_tensor(model["module"][name]) for name in names if name in model["module"]}
    if stage == _SHARDED:
        weights |= _stage_3(models, optimizers)
    else:
        weights |= _stage_1_or_2(model, optimizers, folder)
    for name, shared in model.get("shared_params", {}).items():
        if shared in weights:
            weights[name] = weights[shared] = dataclasses.replace(weights[shared], tie_key=shared)
    return Checkpoint(weights, get_run_info(model))


def _tagged_folder(path: Path, tag: str | None) -> Path:
    if tag is None and (path / _LATEST).is_file():
        tag = (path / _LATEST).read_text().strip()
    folder = path / tag if tag else path
    if not folder.is_dir():
        raise ValueError(f"`tag` must be a folder in {str(path)!r}, got {tag!r}")
    return folder


def _load_ranks(folder: Path, suffix: str, *, weights_only: bool) -> list[dict[str, Any]]:
    """Return the content of the files with a suffix, by rank."""

    def rank(file: Path) -> int:
        match = _RANK.search(file.name)
        return int(match[1]) if match else 0

    files = sorted(folder.glob(f"*{suffix}"), key=rank)
    if len({rank(file) for file in files}) != len(files):
        raise ValueError(
            f"the folder must have one file *{suffix} for each rank, got {', '.join(file.name for file in files[:4])} "
            f"in {str(folder)!r}: of tensor parallelism, which is not supported, or of two checkpoints"
        )
    with _torch.allow_deepspeed():
        return [_torch_file.load(file, weights_only=weights_only) for file in files]


@dataclass(frozen=True)
class _Vector:
    """Tensors one after the other, as one vector that is not in memory."""

    parts: Sequence[torch.Tensor]

    @functools.cached_property
    def ends(self) -> list[int]:
        return list(itertools.accumulate(part.numel() for part in self.parts))

    def blocks(self, start: int, stop: int) -> Iterator[torch.Tensor]:
        """Yield a range of its elements, part by part."""
        for part, end in zip(self.parts, self.ends, strict=True):
            begin = end - part.numel()
            if start < end and begin < stop:
                yield part.reshape(-1)[max(start - begin, 0) : stop - begin]


def _stage_1_or_2(
    model: Mapping[str, Any], optimizers: Sequence[Mapping[str, Any]], folder: Path
) -> dict[str, LazyTensor]:
    """Return the weights: each group of parameters is one vector, and the ranks have equal parts of it."""
    weights: dict[str, LazyTensor] = {}
    paddings = optimizers[0].get("param_alignment_paddings")
    for group, shapes in enumerate(model["param_shapes"]):
        vector = _Vector([optimizer["single_partition_of_fp32_groups"][group] for optimizer in optimizers])
        start = 0
        for index, (name, shape) in enumerate(shapes.items()):
            stop = start + math.prod(shape)
            read = functools.partial(vector.blocks, start, stop)
            weights[name] = LazyTensor(tuple(shape), vector.parts[0].dtype, read)
            start = stop + (paddings[group][index] if paddings else 0)
        if start > vector.ends[-1]:
            raise ValueError(
                f"the ranks' files must have {start:,} elements of group {group}, got {vector.ends[-1]:,} in "
                f"{str(folder)!r}: they are of another checkpoint"
            )
    return weights


def _stage_3(models: Sequence[Mapping[str, Any]], optimizers: Sequence[Mapping[str, Any]]) -> dict[str, LazyTensor]:
    """Return the weights: each parameter is padded and divided by itself, and a rank's parts are one vector."""
    weights: dict[str, LazyTensor] = {}
    for name, shape in (models[0].get("frozen_param_shapes") or {}).items():
        frozen = _Vector([model["frozen_param_fragments"][name].reshape(-1) for model in models])
        read = functools.partial(frozen.blocks, 0, math.prod(shape))
        weights[name] = LazyTensor(tuple(shape), frozen.parts[0].dtype, read)
    vectors = [_Vector([group.reshape(-1) for group in optimizer["fp32_flat_groups"]]) for optimizer in optimizers]
    start = 0
    for shapes in models[0]["param_shapes"]:
        for name, shape in shapes.items():
            size = math.ceil(math.prod(shape) / len(vectors))
            read = functools.partial(_gather, vectors, start, size, math.prod(shape))
            weights[name] = LazyTensor(tuple(shape), vectors[0].parts[0].dtype, read)
            start += size
    if start > min(vector.ends[-1] for vector in vectors):
        raise ValueError(f"the ranks' files must have {start:,} elements each, got fewer: they are of two saves")
    return weights


def _gather(vectors: Sequence[_Vector], start: int, size: int, total: int) -> Iterator[torch.Tensor]:
    """Yield a parameter from the ranks' equal parts, without the padding at the end."""
    for rank, vector in enumerate(vectors):
        used = min(size, total - rank * size)
        if used > 0:
            yield from vector.blocks(start, start + used)
