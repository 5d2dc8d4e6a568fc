"""Reader of a folder of images per class, with the order, slices and padding of the vendor's reader in Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from habana_frameworks.mediapipe.backend.nodes import Pipe

__all__ = ["ImageReader", "get_max_file"]


def get_max_file(files: Sequence[str]) -> str:
    """Return the largest file."""
    return max(files, key=lambda file: Path(file).stat().st_size)


class ImageReader:
    """Reader of ``dir/*/*.ext``: deeper folders and other extensions are absent without a word.

    A legacy pipe has this reader. The others have one of C++, whose random order no source states; here it is the same.

    Raises:
        ValueError: There are no images, or a parameter is invalid.
    """

    def __init__(self, parameters: dict[str, Any], pipe: Pipe) -> None:
        folder, formats = Path(parameters["dir"]), parameters["format"]
        extensions = [formats] if isinstance(formats, str) else list(formats)
        self.classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        files = sorted(str(file) for extension in extensions for file in folder.glob(f"*/*.{extension}"))
        if not files:
            raise ValueError(f"`dir` must have images of {formats} in a folder per class, got {str(folder)!r}")
        drops, pads = _remainder(parameters, is_legacy=pipe.is_legacy)
        slices, index = parameters["num_slices"], parameters["slice_index"]
        if index >= slices:
            raise ValueError(f"`slice_index` must be less than `num_slices`, {slices}, got {index}")
        seed = parameters["seed"]
        self._rng = np.random.default_rng(int(time.time()) if seed is None else seed)
        files = self._round(files, slices, drops=drops, pads=pads)[index::slices]
        self._files = self._round(files, pipe.batch_size, drops=drops, pads=pads)
        self._batch_size = pipe.batch_size
        self._shuffles = parameters["shuffle"]
        self._label_dtype = np.dtype(parameters["label_dtype"])
        self._position = 0

    def _round(self, files: list[str], multiple: int, *, drops: bool, pads: bool) -> list[str]:
        rest = len(files) % multiple
        if not rest:
            return files
        if drops:
            if len(files) < multiple:
                raise ValueError(f"nothing is left of {len(files)} images in whole batches of {multiple}")
            return files[: len(files) - rest]
        if pads:
            return files + files[-1:] * (multiple - rest)
        chosen = self._rng.choice(len(files), multiple - rest, replace=False)
        return files + [files[index] for index in sorted(chosen)]

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._files) // int(self._batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch; images are shuffled within the slice."""
        self._position = 0
        if self._shuffles:
            self._rng.shuffle(self._files)
        return self

    def __next__(self) -> tuple[list[str], np.ndarray[Any, Any]]:
        """Return the files and labels of a batch."""
        files = self._files[self._position : self._position + self._batch_size]
        if not files:
            raise StopIteration
        self._position += self._batch_size
        labels = [self.classes.index(Path(file).parent.name) for file in files]
        return files, np.array(labels, dtype=self._label_dtype)


def _remainder(parameters: dict[str, Any], *, is_legacy: bool) -> tuple[bool, bool]:
    """Return whether images that fill no batch are dropped, and whether the last image is repeated to fill it."""
    drops, pads, strategy = (parameters[name] for name in ("drop_remainder", "pad_remainder", "last_batch_strategy"))
    if not is_legacy:
        from habana_frameworks.mediapipe.media_types import lastBatchStrategy

        if strategy in {lastBatchStrategy.PARTIAL, lastBatchStrategy.FILL}:
            raise NotImplementedError(f"hpu-sim does not simulate `last_batch_strategy` {strategy}")
        if strategy:
            return strategy == lastBatchStrategy.DROP, strategy == lastBatchStrategy.PAD
    elif strategy is not None or parameters["shard_once"] is not None:
        raise ValueError("`last_batch_strategy` and `shard_once` must be None in a legacy pipe")
    return bool(drops), bool(pads)
