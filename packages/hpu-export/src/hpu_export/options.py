"""Options of an export."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from hpu_export.writer import parse_size

__all__ = ["DTYPES", "ExportOptions"]

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
"""dtypes by the names of the option."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export; all exports take them as keyword arguments.

    Args:
        model: Folder or name on the hub of a Hugging Face model, which has configuration, tokenizer and names. None
            for the names of the module.
        dtype: dtype of floating-point weights: "float32", "bfloat16" or "float16", or "fp32", "bf16" or "fp16". None
            for that of the checkpoint.
        max_shard_size: Largest size of a file in a folder, such as "5GB". A larger tensor has a file of its own.
        weights: "averaged" for those that Lightning's WeightAveraging has averaged, if the checkpoint has them, or
            "current" for those of the last step.
        key: Key of the weights in the checkpoint, if it has several models.
        prefix: Start of the names to export, which is removed. None to find it: with `model` by the target's names,
            else "model." if all names have it.
        ignore: Shell patterns of names to leave out, such as "loss.*".
        adapter: Whether to export an adapter of PEFT alone, as PEFT saves it.
        adapter_config: A `peft.PeftConfig`, or the folder or file of its adapter_config.json. None for that in the
            source.
        tag: Name of a DeepSpeed save. None for the one that its file `latest` names.
        overwrite: Whether to replace an earlier export.
        weights_only: Whether to refuse a checkpoint with objects other than weights and plain values. False unpickles
            any object, which can run any code that the file contains.

    Raises:
        ValueError: A value is not one of those above.
    """

    model: str | os.PathLike[str] | None = None
    dtype: str | None = None
    max_shard_size: str = "5GB"
    weights: Literal["averaged", "current"] = "averaged"
    key: str | None = None
    prefix: str | None = None
    ignore: Sequence[str] = ()
    adapter: bool = False
    adapter_config: Any = None
    tag: str | None = None
    overwrite: bool = False
    weights_only: bool = True

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ValueError(f"`dtype` must be one of {', '.join(map(repr, DTYPES))}, got {self.dtype!r}")
        if self.weights not in ("averaged", "current"):
            raise ValueError(f"`weights` must be 'averaged' or 'current', got {self.weights!r}")
        if self.adapter and self.model is None:
            raise ValueError("`model` must be the adapter's base model with `adapter=True`, got None")
        if isinstance(self.ignore, str):
            raise ValueError(f"`ignore` must be a list of patterns, got {self.ignore!r}")  # noqa: TRY004 - as the others.
        parse_size(self.max_shard_size)
