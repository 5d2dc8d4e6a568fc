"""Checkpoints in one file of `torch.save`: Lightning's full checkpoints, Fabric's, and plain state dicts."""

import errno
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from hpu_export import _torch
from hpu_export._lazy_tensor import Checkpoint, LazyTensor, get_run_info

SUFFIXES: Final = (".ckpt", ".pth", ".pt", ".bin")

# Where Lightning's WeightAveraging and EMAWeightAveraging keep the weights that are not averaged.
_CURRENT: Final = "current_model_state"


def load(path: Path, *, weights_only: bool) -> Any:
    """Return the content of a file, whose tensors are read when they are used.

    Raises:
        pickle.UnpicklingError: `weights_only` refuses an object in it.
        ValueError: It is damaged, or no file of `torch.save`.
    """
    try:
        return _torch.load_file(path, weights_only=weights_only)
    except pickle.UnpicklingError as error:
        if not weights_only or "Weights only load failed" not in str(error):
            raise ValueError(f"{str(path)!r} must be a file of torch.save, got one that is damaged") from error
        # The name of the object follows in torch's message.
        _, _, rest = str(error).partition("GLOBAL ")
        found = repr(rest.split()[0]) if rest else "other objects"
        raise pickle.UnpicklingError(
            f"{str(path)!r} must have nothing but weights, numbers, strings and containers, got {found}: if you trust "
            "whoever wrote the file, `weights_only=False` (`--no-weights-only`) unpickles it, which can run any code "
            "that it contains"
        ) from error
    # What torch raises for files that are cut off or of another format.
    except (EOFError, OSError, RuntimeError, ValueError, LookupError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise ValueError(f"{str(path)!r} must be a whole file of torch.save, got one that is damaged") from error


def open_file(path: Path, *, weights: str, key: str | None, weights_only: bool) -> Checkpoint:
    """Return the checkpoint in a file.

    Raises:
        pickle.UnpicklingError: `weights_only` refuses an object in it.
        ValueError: It is damaged, or has no weights where they are looked for.
    """
    content = load(path, weights_only=weights_only)
    if not isinstance(content, Mapping):
        raise ValueError(f"{str(path)!r} must have a dict of weights, got {type(content).__name__!r}")  # noqa: TRY004
    if weights == "current" and key is None and _CURRENT in content:
        key = _CURRENT
    state = _select(content, key, path)
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise ValueError(f"weights must be dense tensors, got {name!r}, which is {tensor.layout}")
    return Checkpoint(
        {name: LazyTensor.from_tensor(tensor) for name, tensor in tensors.items()}, get_run_info({**content})
    )


def _select(content: Mapping[str, Any], key: str | None, path: Path) -> Mapping[str, Any]:
    """Return the state dict of a checkpoint."""
    states = {name: value for name, value in content.items() if isinstance(value, Mapping) and _is_state_dict(value)}
    if key is None and _is_state_dict(content):
        return content
    if key is None and "state_dict" in states:
        key = "state_dict"
    return states[choose_key(key, list(states), str(path))]


def choose_key(key: str | None, found: list[str], source: str) -> str:
    """Return the key of the weights.

    Raises:
        ValueError: It is not there, or there are several and none was chosen.
    """
    names = ", ".join(map(repr, sorted(found))) or "none"
    if key is not None:
        if key not in found:
            raise ValueError(f"`key` must be one of the checkpoint's weights ({names} in {source!r}), got {key!r}")
        return key
    if len(found) != 1:
        raise ValueError(
            f"the checkpoint must have weights under one key, got {names} in {source!r}: choose with `key` (`--key`)"
        )
    return found[0]


def _is_state_dict(value: Mapping[Any, Any]) -> bool:
    """Return whether it maps names to tensors; torch's modules can add a few other objects."""
    return (
        bool(value)
        and all(isinstance(name, str) for name in value)
        and any(isinstance(tensor, torch.Tensor) for tensor in value.values())
        and not any(isinstance(tensor, Mapping) for tensor in value.values())
    )
