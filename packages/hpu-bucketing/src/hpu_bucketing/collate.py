"""Collate function that pads a batch to its bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils.data import default_collate

if TYPE_CHECKING:
    from hpu_bucketing.plan.bucket_plan import BucketPlan

__all__ = ["BucketCollate", "as_tensor", "reference_field"]

Field = str | int
"""Key of a mapping, or index in a tuple."""

# Ignored by torch's cross entropy.
_IGNORE_INDEX: Final = -100
_PAD_VALUES: Final[Mapping[Field, float]] = {"labels": _IGNORE_INDEX}
_REFERENCE_FIELDS: Final = ("input_ids", "inputs_embeds", "tokens")


class BucketCollate:
    """Collate function that pads the samples of a batch to the bucket of the longest one, with an attention mask.

    A sample is a mapping (a dict, or what a tokenizer returns), a tuple, or a tensor. Lists of numbers become tensors.
    The result has the type of the samples; that of tensors is a tuple of the batch and the mask. Fields without padding
    are stacked as by torch's `default_collate`.

    >>> from hpu_bucketing import BucketPlan
    >>> collate = BucketCollate(BucketPlan.from_boundaries([4, 8]))
    >>> collate([{"input_ids": [5, 6, 7]}, {"input_ids": [8]}])["attention_mask"]
    tensor([[1, 1, 1, 0],
            [1, 0, 0, 0]])

    Args:
        plan: The buckets.
        dims: Dimensions of tensors to pad: for each field, the plan's dimension by the tensor's, such as
            `{"input_ids": {0: 0}, "pixel_values": {1: 1, 2: 1}}`. None pads the first dimension of each field that has
            in every sample the length of the first one: "input_ids" of a mapping, or else its first sequence. Where
            all samples so far were of one length, a field of that fixed size cannot be told from a sequence; give
            `dims` for such data.
        pad_values: Value of padding by field; 0 for other fields, and -100, which torch's losses ignore, for "labels".
        attention_mask: Key of the mask in a mapping; a mask that the samples bring is padded. In a tuple the mask is
            the last element. None adds no mask.
        truncate: Whether to cut samples that do not fit into the largest bucket; otherwise they are an error.

    Raises:
        ValueError: A sample does not fit into the largest bucket, or a field was padded in an earlier batch and has not
            the length of the sample now.
    """

    def __init__(
        self,
        plan: BucketPlan,
        *,
        dims: Mapping[Field, Mapping[int, int]] | None = None,
        pad_values: Mapping[Field, float] | None = None,
        attention_mask: str | None = "attention_mask",
        truncate: bool = False,
    ) -> None:
        if dims is None and len(plan.dimensions) > 1:
            raise ValueError(f"`dims` must be given for a plan of {len(plan.dimensions)} dimensions")
        self.plan = plan
        self.dims = dims
        self.pad_values = {**_PAD_VALUES, **(pad_values or {})}
        self.attention_mask = attention_mask
        self.truncate = truncate
        # Fields of which a size was not the length of the sample, and the lengths for which each other one was padded.
        self._fixed: set[Field] = set()
        self._padded: dict[Field, set[int]] = {}

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch of samples of one structure."""
        first = samples[0]
        if isinstance(first, torch.Tensor):
            return tuple(self._collate([{0: sample} for sample in samples], mask_field=1).values())
        if isinstance(first, Mapping):
            rows = [dict(sample) for sample in samples]
            return _like(first, self._collate(rows, mask_field=self.attention_mask))
        if isinstance(first, Sequence) and not isinstance(first, str):
            rows = [dict(enumerate(sample)) for sample in samples]
            values = tuple(self._collate(rows, mask_field=len(first)).values())
            # A namedtuple has no place for the mask.
            return list(values) if isinstance(first, list) else values
        raise TypeError(f"a sample must be a mapping, a tuple or a tensor, got {type(first).__name__}")

    def _collate(self, rows: list[dict[Any, Any]], mask_field: Field | None) -> dict[Any, Any]:
        rows = [{field: as_tensor(value) for field, value in row.items()} for row in rows]
        reference = reference_field(rows[0])
        dims = self.dims or self._variable_fields(rows, reference)
        sizes = [self._sizes(row, dims) for row in rows]
        longest = [max(column) for column in zip(*sizes, strict=True)]
        if self.truncate:
            longest = [min(size, limits[-1]) for size, limits in zip(longest, self.plan.dimensions, strict=True)]
        target = self.plan.fit(longest)
        batch: dict[Any, Any] = {}
        for field in rows[0]:
            values = [row[field] for row in rows]
            if field in dims:
                batch[field] = self._pad(values, dims[field], target, self.pad_values.get(field, 0))
            else:
                batch[field] = default_collate(values)
        if self.attention_mask is not None and mask_field is not None and mask_field not in batch:
            lengths = torch.tensor([min(size[0], target[0]) for size in sizes])
            batch[mask_field] = (torch.arange(target[0]) < lengths[:, None]).long()
        return batch

    def _variable_fields(self, rows: Sequence[Mapping[Any, Any]], reference: Any) -> dict[Any, dict[int, int]]:
        """Return the fields that have the length of the reference field in every sample, to be padded at the front.

        Raises:
            ValueError: One was padded in an earlier batch, but is of a fixed size.
        """
        lengths = [row[reference].shape[0] for row in rows]
        for field in rows[0]:
            sizes = [row[field].shape[0] if _is_sequence(row[field]) else None for row in rows]
            if sizes == lengths and field not in self._fixed:
                self._padded.setdefault(field, set()).update(lengths)
                continue
            self._fixed.add(field)
            if padded := self._padded.pop(field, None):
                raise ValueError(
                    f"field {field!r} has size {sizes[0]} in a sample of length {lengths[0]}, and was padded as a "
                    f"sequence in an earlier batch, with samples of length {', '.join(map(str, sorted(padded)))}: "
                    f"name the fields to pad, such as `dims={{{reference!r}: {{0: 0}}}}`"
                )
        return {field: {0: 0} for field in rows[0] if field in self._padded}

    def _sizes(self, row: Mapping[Any, torch.Tensor], dims: Mapping[Any, Mapping[int, int]]) -> tuple[int, ...]:
        """Return the size of a sample in each dimension of the plan."""
        sizes = [0] * len(self.plan.dimensions)
        for field, pairs in dims.items():
            for tensor_dim, plan_dim in pairs.items():
                sizes[plan_dim] = max(sizes[plan_dim], row[field].shape[tensor_dim])
        return tuple(sizes)

    @staticmethod
    def _pad(
        values: Sequence[torch.Tensor], pairs: Mapping[int, int], target: Sequence[int], pad_value: float
    ) -> torch.Tensor:
        shape = list(values[0].shape)
        for tensor_dim, plan_dim in pairs.items():
            shape[tensor_dim] = target[plan_dim]
        batch = values[0].new_full((len(values), *shape), pad_value)
        for row, value in zip(batch, values, strict=True):
            part = tuple(slice(min(size, limit)) for size, limit in zip(value.shape, shape, strict=True))
            row[part] = value[part]
        return batch


def as_tensor(value: Any) -> Any:
    """Return a list of numbers as a tensor, and another value as it is."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (int, float)):
        return torch.as_tensor(value)
    return value


def reference_field(row: Mapping[Any, Any]) -> Any:
    """Return the field of a sample, in which lists are tensors, whose length is the sample's.

    Raises:
        ValueError: No field is a sequence.
    """
    sequences = [field for field, value in row.items() if _is_sequence(value)]
    if not sequences:
        raise ValueError(f"a sample must have a sequence, got fields {list(row)!r} without one")
    return next((field for field in _REFERENCE_FIELDS if field in sequences), sequences[0])


def _is_sequence(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0


def _like(sample: Mapping[Any, Any], batch: dict[Any, Any]) -> Any:
    """Return a batch as the mapping type of its samples, such as a tokenizer's; a dict if that is not possible."""
    kind: Any = type(sample)
    try:
        return batch if kind is dict else kind(batch)
    except TypeError:
        return batch
