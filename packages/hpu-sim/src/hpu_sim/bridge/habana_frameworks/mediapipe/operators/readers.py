"""Readers as operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.mediapipe.backend.nodes import Operator
from habana_frameworks.mediapipe.operators.cpu_nodes.cpu_nodes import check_user_classes
from habana_frameworks.mediapipe.operators.reader_nodes.read_image_from_dir import ImageReader

if TYPE_CHECKING:
    from habana_frameworks.mediapipe.backend.nodes import Pipe

__all__ = ["OPERATORS"]


def _make_external(parameters: dict[str, Any], pipe: Pipe) -> Any:
    check_user_classes()
    reader = parameters["impl"](parameters, SimpleNamespace(batch_size=pipe.batch_size))
    # A pipe asks for these to allocate its buffers.
    infos, largest = reader.gen_output_info(), reader.get_largest_file()
    if len(infos) != int(parameters["num_outputs"] or 1):
        raise ValueError(f"`gen_output_info` must have {parameters['num_outputs']} outputs, got {len(infos)}")
    if not isinstance(largest, str):
        raise TypeError(f"`get_largest_file` must return a path, got {largest!r}")
    reader.get_media_output_type()
    return reader


OPERATORS: Final = (
    Operator(
        "ReadImageDatasetFromDir",
        {"cpu": "reader"},
        ImageReader,
        parameters={
            "shuffle": False,
            "seed": None,
            "dir": "",
            "format": "",
            "num_slices": 1,
            "slice_index": 0,
            "drop_remainder": None,
            "pad_remainder": None,
            "label_dtype": "uint64",
            "last_batch_strategy": None,
            "shard_once": None,
        },
        outputs=2,
    ),
    Operator(
        "MediaExtReaderOp",
        {"cpu": "reader"},
        _make_external,
        parameters={"impl": None, "seed": None, "priv_params": {}},
    ),
)
