"""Decoding on the card, by a pipe of Intel's media loader that reads the files in our order.

The pipe has two operators, a reader of our own and the decoder. Order, shares, padding, random numbers and labels are
decided here; flips and normalization run on the card in torch. Source of the interface: Intel's documentation of
`habana_frameworks.mediapipe`, and the loader of optimum-habana's example for CLIP. None of this was run on a card.
"""
# hpu-doctor verify: functions-of-the-media-loader, pipe-decodes-what-a-reader-names

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from hpu_core import bridge
from hpu_data import folder, transforms
from hpu_data.errors import CardDecodeError
from hpu_data.sampler import SampleKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch.utils.data import Dataset

    from hpu_data.sampler import EpochSampler

__all__ = ["CardDecoder"]

# Generations with a decoder. Source: Intel's release notes of 1.8.0 (Gaudi 2), and its documentation today (both).
_GENERATIONS: Final = ("GAUDI2", "GAUDI3")
# Batches ahead. Source: the default of Intel's own loader for torch.
_PREFETCH: Final = 3


class CardDecoder:
    """Pipe that decodes a data set on this process's card.

    Args:
        dataset: An `ImageFolder` of torchvision, or a `Subset` of one.
        sampler: The order; its `last` must not be "short".
        pad_label: Label of padding; None if there is none.

    Raises:
        CardDecodeError: This process, its card, its bridge or the data set do not allow it.

    Attributes:
        files: Files of the data set.
        pending: Batches of the epoch from its start on.
    """

    def __init__(self, dataset: Dataset[Any], sampler: EpochSampler, pad_label: int | None) -> None:
        _check_machine()
        if sampler.last == "short":
            raise CardDecodeError("`pad_label=None` makes the last batch shorter, and the card's batches have one size")
        self.files, transform = folder.files_of(dataset)
        self._transform = transforms.translate(transform)
        self._sampler, self._pad_label = sampler, pad_label
        self._pid = os.getpid()
        self.pending: list[NDArray[np.int64]] = []
        self._generator = torch.Generator()
        self._seed = self._epoch = 0
        self._iterator: Any = None
        try:
            self._iterator = self._build()
        except (ImportError, AttributeError, RuntimeError, ValueError) as error:
            # Such as an AttributeError of `inspect.getargspec`, which bridges of 1.17 use and Python 3.11 lacks.
            raise CardDecodeError(f"Intel's media loader failed: {type(error).__name__}: {error}") from error

    def batches(self) -> Iterator[list[torch.Tensor]]:
        """Yield images and labels of the sampler's epoch from its start on, both on the card.

        Raises:
            RuntimeError: This is a forked process.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(
                "the card's decoder belongs to the process that made it, and this one was forked: iterate the loader "
                "in the process that trains, or pass `decode='host'`"
            )
        self.pending = self._sampler.batches()
        self._seed, self._epoch = self._sampler.seed, self._sampler.epoch
        iterator = iter(self._iterator)
        for _ in self.pending:
            # The name under which torch's own loader appears in profiles.
            with torch.profiler.record_function("enumerate(DataLoader)#hpu_data.CardDecoder.__next__"):
                images, rows = next(iterator)
                batch = [self._transform.finish(images, rows[:, 1:]), rows[:, 0].long()]
            yield batch

    def close(self) -> None:
        """Release the pipe."""
        if self._iterator is not None:
            self._iterator.pipe.del_iter()
            self._iterator = None

    def read_batch(self, step: int) -> tuple[list[str], NDArray[np.float32], NDArray[np.int32]]:
        """Return the files of a batch, their windows `(images, 4)`, and label and flips `(images, 3)`."""
        files, windows, rows = [], [], []
        for index in self.pending[step].tolist():
            key = SampleKey.of(index, self._seed, self._epoch)
            file, size = self.files.read(key)
            window, flips = self._transform.draw(size, self._generator.manual_seed(key.seed))
            label = self._pad_label if key.is_padding and self._pad_label is not None else self.files.samples[key][1]
            files.append(file)
            windows.append(window)
            rows.append((label, *flips))
        return files, np.array(windows, dtype=np.float32), np.array(rows, dtype=np.int32)

    def _build(self) -> Any:
        """Return Intel's iterator of a new pipe, whose reader follows our order."""
        fn, types, pipe_class = (bridge.load_media(name) for name in ("fn", "media_types", "mediapipe"))
        readers, decoder = bridge.load_media("operators.reader_nodes.reader_nodes"), self
        size, transform = self._sampler.batch_size, self._transform

        class Reader(readers.media_ext_reader_op_impl):  # type: ignore[misc,name-defined] # made at run time
            def __init__(self, params: Any, fw_params: Any) -> None:
                del params, fw_params

            def __iter__(self) -> Any:
                self._steps = iter(range(len(decoder.pending)))
                return self

            def __next__(self) -> Any:
                return decoder.read_batch(next(self._steps))

            def __len__(self) -> int:
                return len(decoder.pending)

            def gen_output_info(self) -> list[Any]:
                info, dtype = readers.media_ext_reader_op_tensor_info, types.dtype
                shapes = ((dtype.NDT, [size]), (dtype.FLOAT32, [4, size]), (dtype.INT32, [3, size]))
                return [info(kind, np.array(shape, dtype=np.uint32), "") for kind, shape in shapes]

            def get_largest_file(self) -> str:
                return decoder.files.largest

            def get_media_output_type(self) -> Any:
                return types.readerOutType.FILE_LIST

        class Pipe(pipe_class.MediaPipe):  # type: ignore[misc,name-defined] # as above
            def __init__(self) -> None:
                super().__init__(device="legacy", prefetch_depth=_PREFETCH, batch_size=size, pipe_name="hpu-data")

            def definegraph(self) -> Any:
                files, windows, rows = fn.MediaExtReaderOp(impl=Reader, num_outputs=3)()
                decode = fn.ImageDecoder(
                    device="hpu",
                    output_format=types.imgtype.RGB_P,
                    resize=list(transform.size),
                    resampling_mode=getattr(types.ftype, transforms.FILTERS[transform.interpolation]),
                )
                return decode(files, windows), rows

        return bridge.load_media("plugins.iterator_pytorch").HPUGenericPytorchIterator(mediapipe=Pipe())


def _check_machine() -> None:
    if not bridge.is_open():
        raise CardDecodeError("this process has opened no card")
    generation = bridge.generation()
    if generation not in _GENERATIONS:
        # Intel's loader for the CPU of such machines (aeon) keeps no order and no position, and hangs at the last batch
        # with Lightning 2 (lightning-Habana, pull request 29).
        raise CardDecodeError(f"{generation} has no decoder, and Intel's loader for the CPU cannot resume")
