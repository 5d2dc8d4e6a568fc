"""Operators of the host, and random numbers of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from habana_frameworks.mediapipe.backend.nodes import Operator
from habana_frameworks.mediapipe.operators import decoder
from habana_frameworks.mediapipe.operators.cpu_nodes.cpu_nodes import check_user_classes

if TYPE_CHECKING:
    from habana_frameworks.mediapipe.backend.nodes import Kind, Pipe

__all__ = ["OPERATORS"]

_BOTH: Final[dict[str, Kind]] = {"cpu": "cpu", "hpu": "hpu"}


def _numpy(parameters: dict[str, Any]) -> Any:
    # NumPy has no bfloat16: the pipe's output is converted.
    name = parameters["dtype"] or "float32"
    return np.dtype("float32" if name == "bfloat16" else name)


def _make_constant(parameters: dict[str, Any], pipe: Pipe) -> Any:
    data = parameters["data"]
    if data.dtype != _numpy(parameters):
        raise ValueError(f"`data` of MediaConst must be of `dtype`, {parameters['dtype']!r}, got {data.dtype.name!r}")
    array = np.asarray(data).reshape(list(reversed(parameters["shape"])))
    if parameters["batch_broadcast"]:
        array = np.broadcast_to(array, (pipe.batch_size, *array.shape))
    return lambda: array


def _make_fill(parameters: dict[str, Any], pipe: Pipe) -> Any:
    return lambda: np.full((pipe.batch_size, 1), parameters["constant"], dtype=_numpy(parameters))


def _make_function(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe
    check_user_classes()
    function = parameters["func"](parameters)
    return lambda **inputs: function(*inputs.values())


def _make_coin(parameters: dict[str, Any], pipe: Pipe) -> Any:
    rng = np.random.default_rng(parameters["seed"])

    def flip(probability: Any = None) -> Any:
        chance = parameters["probability"] if probability is None else np.reshape(probability, -1)
        return (rng.random(pipe.batch_size) < chance).astype(parameters["dtype"] or "int8")

    return flip


def _make_uniform(parameters: dict[str, Any], pipe: Pipe) -> Any:
    rng = np.random.default_rng(parameters["seed"])
    return lambda: rng.uniform(parameters["low"], parameters["high"], pipe.batch_size).astype(_numpy(parameters))


def _make_reshape(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe
    shape = [int(size) for size in reversed(parameters["size"])]
    return lambda input: np.reshape(input, shape)  # noqa: A006 - the vendor's name


def _make_window(parameters: dict[str, Any], pipe: Pipe) -> Any:
    del pipe
    seed = parameters["seed"]
    rng = np.random.default_rng(None if seed == -1 else seed)

    def windows(input: Any) -> Any:  # noqa: A002 - the vendor's name
        boxes = [decoder.random_window(rng, decoder.size_of(file), parameters["type"], parameters) for file in input]
        return np.array(boxes, dtype=np.float32)

    return windows


OPERATORS: Final = (
    Operator(
        "MediaConst",
        {"cpu": "cpu"},
        _make_constant,
        parameters={"data": None, "shape": [], "batch_broadcast": True},
    ),
    Operator(
        "MediaFunc",
        {"cpu": "cpu"},
        _make_function,
        ("input0", "input1", "input2"),
        0,
        {"func": None, "shape": [], "priv_params": None},
    ),
    Operator("Constant", _BOTH, _make_fill, parameters={"constant": 0.0}),
    Operator("CoinFlip", _BOTH, _make_coin, ("probability",), 0, {"seed": None, "probability": 0.5}),
    Operator("RandomUniform", _BOTH, _make_uniform, parameters={"seed": None, "low": 0.0, "high": 1.0, "dims": 1}),
    Operator("Reshape", _BOTH, _make_reshape, ("input",), 1, {"size": [], "tensorDim": 5, "layout": ""}),
    Operator(
        "CropWindowGen",
        {"cpu": "cpu"},
        _make_window,
        ("input",),
        1,
        {"type": 0, **dict.fromkeys(decoder.RANGES, 0.0), "resize_width": 0, "resize_height": 0, "seed": -1},
        is_cpp_only=True,
    ),
)
