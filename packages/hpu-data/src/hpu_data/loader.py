"""DataLoader that decodes on the card or on the host, with one meaning."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, default_collate

from hpu_core import frameworks
from hpu_data.card import CardDecoder
from hpu_data.errors import CardDecodeError
from hpu_data.sampler import EpochSampler, SampleKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hpu_data.sampler import Last

__all__ = ["DataLoader", "Decode"]

Decode = Literal["auto", "card", "host"]
"""Where images are decoded."""

_log = logging.getLogger(__name__)


class SeededDataset(Dataset[Any]):
    """Data set whose random transforms depend on the sample and the epoch alone.

    Attributes:
        dataset: The data set behind it.
        pad_label: Label of samples that only fill a batch; None if there are none.
    """

    def __init__(self, dataset: Any, pad_label: int | None) -> None:
        self.dataset = dataset
        self.pad_label = pad_label

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return a sample, with the random numbers of its seed where the index is a `SampleKey`.

        Raises:
            TypeError: It is padding, and no pair of image and label.
        """
        if not isinstance(index, SampleKey):
            return self.dataset[index]
        generators = (random.getstate(), np.random.get_state(), torch.default_generator.get_state())  # noqa: NPY002 - what transforms use
        random.seed(index.seed)
        np.random.seed(index.seed % 2**32)  # noqa: NPY002 - as above
        # Not `torch.manual_seed`, which would seed the card as well.
        torch.default_generator.manual_seed(index.seed)
        try:
            sample = self.dataset[int(index)]
        finally:
            random.setstate(generators[0])
            np.random.set_state(generators[1])  # noqa: NPY002 - as above
            torch.default_generator.set_state(generators[2])
        if not index.is_padding:
            return sample
        if not isinstance(sample, (tuple, list)) or len(sample) != 2 or not isinstance(sample[1], int):  # noqa: PLR2004 - a pair
            raise TypeError(
                f"samples must be pairs of an image and an int to be padded, got {type(sample).__name__}: pass "
                "`pad_label=None` or `drop_last=True`"
            )
        return sample[0], self.pad_label


class DataLoader(TorchDataLoader[Any]):
    """DataLoader of images and labels, decoded on the card if it can, and else on the host by torch's DataLoader.

    Both have the same order, random numbers, lengths and padding, and the meaning of the data set's own transforms. The
    decision is made at the first batch, and logged with its reason. Any data set of samples is taken on the host.

    Every epoch is shuffled over all ranks. Batches have one size: samples that fill none are dropped with `drop_last`;
    otherwise training (`shuffle`) repeats the epoch's first ones, and evaluation fills with samples whose label is
    `pad_label`, so that no image counts twice. Lightning 2.0 to 2.6 and Fabric keep its sampler.

    Args:
        dataset: The data set, an `ImageFolder` of torchvision to decode on the card.
        batch_size: Samples per batch of one rank.
        shuffle: Whether each epoch has a random order.
        drop_last: Whether samples that fill no batch on all ranks are left out.
        decode: "auto" decodes on the card where that means the same, "card" raises where it does not, and "host" never.
        pad_label: Label of padding, by default the one that torch's `cross_entropy` ignores; None leaves the last batch
            shorter, on the host only, with samples repeated so that ranks have equally many.
        seed: Seed of the order and of random transforms.
        num_replicas: Number of ranks that read different samples; None for that of the process group.
        rank: This rank among them; None for that in the process group.
        num_workers: Processes that decode on the host.
        persistent_workers: Whether they live until `close`, and not for an epoch.
        **options: Further arguments of torch's DataLoader, of which `sampler` and `generator` are refused.

    Raises:
        ValueError: An argument is invalid.

    Attributes:
        decodes_on: "card" or "host" once the decision is made, else None.
        reason: Why it is decoded on the host; None before the decision and on the card.
    """

    def __init__(  # noqa: PLR0913 - those of torch's, and of the sampler
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        drop_last: bool = False,
        decode: Decode = "auto",
        pad_label: int | None = -100,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        num_workers: int = 0,
        persistent_workers: bool = True,
        batch_sampler: Any = None,
        **options: Any,
    ) -> None:
        if decode not in {"auto", "card", "host"}:
            raise ValueError(f"`decode` must be 'auto', 'card' or 'host', got {decode!r}")
        if any(options.pop(name, None) is not None for name in ("sampler", "generator")):
            raise ValueError("`sampler` and `generator` must be None: pass `shuffle` and `seed`, or use a Subset")
        self.decode, self.pad_label, self.seed = decode, pad_label, seed
        self.decodes_on: Literal["card", "host"] | None = None
        self.reason: str | None = None
        self.order: EpochSampler | None = None
        self._card: CardDecoder | None = None
        if batch_sampler is None:
            last: Last = "drop" if drop_last else "short" if pad_label is None else "repeat" if shuffle else "mask"
            batch_sampler = self.order = EpochSampler(
                len(dataset),  # type: ignore[arg-type] # sized
                batch_size,
                last=last,
                shuffle=shuffle,
                seed=seed,
                num_replicas=num_replicas,
                rank=rank,
            )
        if not isinstance(dataset, SeededDataset):
            dataset = SeededDataset(dataset, pad_label)
        options["persistent_workers"] = persistent_workers and num_workers > 0
        super().__init__(dataset, batch_sampler=batch_sampler, num_workers=num_workers, **options)
        if self.order is not None:
            # torch has put a SequentialSampler here, which it does not use, and refuses assignments.
            vars(self)["sampler"] = self.order

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # an iterator that counts
        """Yield the batches, images and labels, and note how many were delivered.

        Raises:
            CardDecodeError: `decode` is "card", and the card cannot.
        """
        if self.order is None:
            # In `Trainer.predict`, Lightning's wrapper that notes the indices.
            yield from super().__iter__()
            return
        step = self.order.begin()
        self._decide(self.order)
        for batch in super().__iter__() if self._card is None else self._card.batches():
            step += 1
            self.order.position = step
            yield batch
        self.order.start = 0

    def state_dict(self) -> dict[str, int]:
        """Return the state: the epoch, the number of batches delivered in it, and what it belongs to."""
        return {} if self.order is None else self.order.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue after the batches that had been delivered when the state was saved."""
        if self.order is not None and state_dict:
            self.order.load_state_dict(state_dict)

    def close(self) -> None:
        """Release the card's pipe and end the workers; another iteration makes new ones."""
        if self._card is not None:
            self._card.close()
        self._card, self.decodes_on, self.reason = None, None, None
        # torch ends persistent workers with their iterator.
        self._iterator = None

    def _decide(self, order: EpochSampler) -> None:
        if self.decodes_on is not None:
            return
        self.reason = "it has a `collate_fn`" if self.collate_fn is not default_collate else None
        if self.decode == "host":
            self.reason = "`decode` is 'host'"
        dataset: Any = self.dataset
        try:
            if self.reason is None:
                self._card = CardDecoder(dataset.dataset, order, self.pad_label)
        except CardDecodeError as error:
            self.reason = str(error)
        if self.decode == "card" and self._card is None:
            raise CardDecodeError(self.reason)
        self.decodes_on = "host" if self._card is None else "card"
        on_card = "the card: resized pixels differ by a few levels from the host's"
        where = f"the host ({self.num_workers} workers): {self.reason}" if self._card is None else on_card
        text = f"hpu-data: {order.size} samples are decoded on {where}"
        if frameworks.imported():
            frameworks.current().fabric("utilities.rank_zero").rank_zero_info(text)
        else:
            _log.info(text)
