"""Measured points for the planner: products, bandwidth, launches, host reads and collectives."""

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from hpu_core import bridge
from hpu_doctor.verify.assumption import Condition, Subject
from hpu_doctor.verify.register._tools import core, hpu
from hpu_doctor.verify.register.hccl import start

_MEANS = "plans rest on published figures until they are calibrated with this card's."
SUBJECT = Subject(
    "Points for the planner",
    simulator="hardware",
    reason="its times are the host's",
    means={"hpu-sim": _MEANS},
    is_point=True,
    seconds=120,
)
assume = SUBJECT.assume

_TIMES = Condition("measured times", lambda seen: isinstance(seen, list) and all(each["seconds"] > 0 for each in seen))
_MIB = 1 << 20
_REPEATS = 5
# M, K and N of published measurements of Gaudi 2 and 3, of layers of models, and of small products.
_SHAPES = (
    (6144, 11264, 5120),
    (14336, 15360, 2048),
    (16384, 4096, 768),
    (4096, 4096, 4096),
    (2048, 4096, 11008),
    (1024, 1024, 1024),
    (256, 4096, 4096),
)
# A simulated card would take minutes for these.
_SIMULATED_SHAPES = ((64, 64, 64), (128, 64, 32))


def _seconds(work: Callable[[], object], count: int = 1) -> float:
    """Return the shortest time of one call out of several runs of `count` calls."""
    work()
    _finish()
    found = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        for _ in range(count):
            work()
        _finish()
        found.append((time.perf_counter() - begin) / count)
    return min(found)


def _finish() -> None:
    core().mark_step()
    hpu().synchronize()


def _products(dtype: str) -> object:
    found = []
    for rows, inner, columns in _SIMULATED_SHAPES if bridge.is_simulated() else _SHAPES:
        left = torch.ones(rows, inner, device="hpu").to(getattr(torch, dtype))
        right = torch.ones(inner, columns, device="hpu").to(getattr(torch, dtype))
        found.append(
            {
                "id": f"matmul-{dtype}-{rows}x{inner}x{columns}",
                "kind": "matmul",
                "dtype": dtype,
                "shape": [rows, inner, columns],
                "ranks": 1,
                "seconds": _seconds(functools.partial(torch.mm, left, right), count=10),
            }
        )
    return found


for _dtype, _generations in (("bfloat16", ()), ("float32", ()), ("float16", ("GAUDI2", "GAUDI3"))):
    SUBJECT.add(
        f"matmul-{_dtype}",
        f"Time of products in {_dtype}, by shape.",
        functools.partial(_products, _dtype),
        source="stas00/ml-engineering@744d01e1: 418.7 of 432 TFLOP/s on Gaudi 2, 1243 of 1677 on Gaudi 3",
        expected=_TIMES,
        generations=_generations,
    )


@assume(
    source="Hot Chips 2024: 2.46 TB/s on Gaudi 2, 3.67 TB/s on Gaudi 3",
    expected=_TIMES,
)
def memory_bandwidth() -> object:
    """Time to copy a tensor within the memory of a card; it reads and writes its bytes."""
    sizes = (_MIB,) if bridge.is_simulated() else (64 * _MIB, 1024 * _MIB)
    found = []
    for size in sizes:
        source = torch.ones(size, dtype=torch.uint8, device="hpu").view(torch.float32)
        target = torch.empty_like(source)
        seconds = _seconds(functools.partial(target.copy_, source), count=10)
        found.append(_point(f"copy-{size // _MIB}-mib", "bandwidth", seconds, dtype="float32", size=size))
    return found


@assume(
    source="optimum-habana's baselines: Gemma 2B takes 1.6 times as long in eager mode as in lazy mode",
    expected=_TIMES,
    mode="eager",
)
def launch_cost() -> object:
    """Time to launch one small operator in eager mode, in a row of many."""
    tensor = torch.ones(64, device="hpu")
    return [_point("launch-add", "launch", _seconds(functools.partial(tensor.add_, 1), count=200), size=256)]


@assume(
    source="no published figure; Intel's page of HPU graphs says that a replay saves the host's time",
    expected=_TIMES,
    mode="lazy",
)
def graph_launch_cost() -> object:
    """Time to replay an HPU graph of one small operator."""
    tensor = torch.ones(64, device="hpu")
    graph = hpu().HPUGraph()
    with hpu().graph(graph):
        tensor.add_(1)
    return [_point("graph-launch-add", "graph_launch", _seconds(graph.replay, count=100), size=256)]


@assume(
    source="vllm-gaudi#1182: about 0.35 s per synchronous copy in a busy queue; no figure of an idle one",
    expected=_TIMES,
)
def host_read_cost() -> object:
    """Time to read one number from an idle card."""
    tensor = torch.ones(1, device="hpu")
    return [_point("item", "host_read", _seconds(tensor.item, count=20), size=4)]


def _collective(name: str) -> object:
    _, ranks = start()
    calls: dict[str, Callable[[Any, Any], object]] = {
        "all-reduce": lambda tensor, _: dist.all_reduce(tensor),
        "all-gather": lambda tensor, whole: dist.all_gather_into_tensor(whole, tensor),
        "reduce-scatter": dist.reduce_scatter_tensor,
    }
    found = []
    for mib in (1,) if bridge.is_simulated() else (1, 16, 256):
        tensor = torch.ones(mib * _MIB // 2, dtype=torch.bfloat16, device="hpu")
        whole = torch.ones(ranks * tensor.numel(), dtype=torch.bfloat16, device="hpu")
        seconds = _seconds(functools.partial(calls[name], tensor, whole), count=3)
        point = _point(f"{name}-{mib}-mib", "collective", seconds, dtype="bfloat16", size=mib * _MIB)
        found.append({**point, "ranks": ranks})
    return found


for _name in ("all-reduce", "all-gather", "reduce-scatter"):
    SUBJECT.add(
        f"time-of-{_name}",
        f"Time of {_name} over all cards, by the size of each rank's tensor.",
        functools.partial(_collective, _name),
        source="Intel's Collectives_Performance: 8 cards, all_reduce of 256 MB in 0.916 ms",
        expected=_TIMES,
        ranks=True,
        quick=False,
    )


def _point(name: str, kind: str, seconds: float, *, dtype: str = "float32", size: int) -> dict[str, Any]:
    return {"id": name, "kind": kind, "dtype": dtype, "bytes": size, "ranks": 1, "seconds": seconds}
