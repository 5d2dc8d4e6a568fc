"""Base class of a reader of the program's own."""

from __future__ import annotations

# ruff: noqa: N801 - the vendor's names
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from habana_frameworks.mediapipe.backend.nodes import opnode_tensor_info

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["media_ext_reader_op_impl", "media_ext_reader_op_tensor_info"]


media_ext_reader_op_tensor_info = opnode_tensor_info


class media_ext_reader_op_impl(ABC):
    """Reader of the program's own. The constructor gets the operator's parameters and those of the pipe."""

    @abstractmethod
    def __init__(self, params: dict[str, Any], fw_params: Any) -> None:
        """Take the parameters."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch."""

    @abstractmethod
    def __next__(self) -> Any:
        """Return the outputs of a batch: a list of files, and arrays."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches."""

    @abstractmethod
    def gen_output_info(self) -> list[opnode_tensor_info]:
        """Return the types and shapes of the outputs."""

    @abstractmethod
    def get_largest_file(self) -> str:
        """Return the largest file, by which the pipe allocates buffers."""

    @abstractmethod
    def get_media_output_type(self) -> int:
        """Return what the first output is: `readerOutType.FILE_LIST`."""
