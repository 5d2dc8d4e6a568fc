"""Lengths of the samples of a program's training data, without a Trainer and without a card."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from hpu_bucketing._lightning import LightningDataModule
from hpu_bucketing.collate import as_tensor, reference_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["dataset_size", "load_dataloader", "measure_lengths"]


def load_dataloader(path: Path, name: str | None = None) -> DataLoader[Any]:
    """Return the training data of a Python file.

    Args:
        path: File with a LightningDataModule that needs no arguments, or with a function `train_dataloader`.
        name: Name of the class or function; None for the only one.

    Raises:
        ValueError: The file has none, or several, or something else than one DataLoader comes of it.
    """
    module = _import(path)
    source = _find(module, path, name)
    if isinstance(source, type):
        data = source()
        data.prepare_data()
        data.setup("fit")
        loader = data.train_dataloader()
    else:
        loader = source()
    if not isinstance(loader, DataLoader):
        raise ValueError(f"the training data must be one DataLoader, got {type(loader).__name__}")  # noqa: TRY004 - a fault of the file
    return loader


def measure_lengths(loader: DataLoader[Any], keys: Sequence[str] = (), samples: int = 100_000) -> NDArray[np.int64]:
    """Return the length of each sample, `(samples, dimensions)`.

    Args:
        loader: The data.
        keys: Fields to measure, one per dimension of the plan: "input_ids", or "pixel_values:1" for the size of
            dimension 1. None measures the field that a `BucketCollate` takes for the length.
        samples: Largest number of samples; of a larger map-style data set some are drawn.

    Raises:
        ValueError: A sample has no such field, or there are no samples.
    """
    rows = [_sizes(sample, keys) for sample in _samples(loader, samples)]
    if not rows:
        raise ValueError("the training data has no samples")
    return np.asarray(rows, dtype=np.int64)


def dataset_size(loader: DataLoader[Any], lengths: NDArray[np.int64], most: int) -> int | None:
    """Return the number of samples of an epoch.

    Args:
        loader: The data.
        lengths: Lengths of `measure_lengths`.
        most: Largest number of samples that it measured.

    Returns:
        The number; None if a stream goes on and has no length.
    """
    dataset: Any = loader.dataset
    try:
        return len(dataset)
    except TypeError:
        return len(lengths) if len(lengths) < most else None


def _import(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"the file must be a Python file, got {str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    # Modules next to the file, and classes that workers unpickle.
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _find(module: Any, path: Path, name: str | None) -> Any:
    if name is not None:
        if not hasattr(module, name):
            raise ValueError(f"{path} has no {name!r}")
        return getattr(module, name)
    if callable(getattr(module, "train_dataloader", None)):
        return module.train_dataloader
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, LightningDataModule) and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        raise ValueError(
            f"{path} must have one LightningDataModule or a function `train_dataloader`, got {names}: choose by --name"
        )
    return classes[0]


def _samples(loader: DataLoader[Any], most: int) -> Iterator[Any]:
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        yield from itertools.islice(dataset, most)
        return
    total = len(dataset)
    if total <= most:
        indices: Any = range(total)
    else:
        indices = np.sort(np.random.default_rng(0).choice(total, most, replace=False)).tolist()
    for index in indices:
        yield dataset[index]


def _sizes(sample: Any, keys: Sequence[str]) -> tuple[int, ...]:
    if isinstance(sample, torch.Tensor):
        sample = {"0": sample}
    fields = sample.items() if hasattr(sample, "items") else enumerate(sample)
    row = {str(key): as_tensor(value) for key, value in fields}
    names = keys or [reference_field(row)]
    sizes = []
    for key in names:
        name, _, dimension = key.partition(":")
        if name not in row:
            raise ValueError(f"`--key` must be one of {', '.join(row)}, got {name!r}")
        sizes.append(int(row[name].shape[int(dimension or 0)]))
    return tuple(sizes)
