"""Sweep over torch's operator database that compares the simulated device with the CPU, forward and backward.

    python packages/hpu-sim/sweep/op_sweep.py [--dtype float32 ...] [--only NAME]

An operator agrees if its results and gradients are close to the CPU's by torch.testing's tolerances. Bitwise equal
results are counted separately: some of LAPACK's depend on the alignment of memory, and autograd may add gradients in
another order. Each known exception has its reason in EXCEPTIONS. The operators run in a child process, which is
restarted after an operator that crashes it. The exit code is 1 if an operator crashed, if one disagreed without a
reason, or if fewer than 99 % agree.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, Final

DTYPES: Final = ("float32", "bfloat16", "int64", "bool")
REQUIRED_SHARE: Final = 0.99
SAMPLES: Final = 12  # per operator and dtype

_SPARSE = "hpu has no sparse tensors"
_CHUNKS = "torch selects the chunk size by device, and bfloat16 sums depend on it"
# Only shapes, strides and dtypes of uninitialized memory can be compared.
UNINITIALIZED: Final = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
EXCEPTIONS: Final = {
    "tensor_split": "torch requires tensor indices on the CPU for every accelerator",
    "sparse.sampled_addmm": _SPARSE,
    "sparse.mm.reduce": _SPARSE,
    "to_sparse": _SPARSE,
    "nn.functional.linear_cross_entropy.chunked": _CHUNKS,
    "nn.functional.linear_cross_entropy.chunked_none": _CHUNKS,
}


def main() -> int:
    """Run the sweep, and print the outcome of each dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="sweep this dtype instead of all; repeatable")
    parser.add_argument("--only", help="sweep this operator only")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        run_child(options.child, options.dtype[0], options.only)
        return 0
    failed = False
    for dtype in options.dtype or DTYPES:
        failed |= not report(dtype, sweep(dtype, options.only))
    return int(failed)


def sweep(dtype: str, only: str | None) -> list[dict[str, Any]]:
    """Return a record per operator from child processes, which may crash."""
    records: list[dict[str, Any]] = []
    start = 0
    while True:
        command = [sys.executable, __file__, "--child", str(start), "--dtype", dtype]
        command += ["--only", only] if only else []
        child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)  # noqa: S603 - this file
        records += [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        if child.returncode == 0:
            return [record for record in records if record["outcome"] != "started"]
        if not records or records[-1]["outcome"] != "started":
            raise RuntimeError(f"the child process failed outside of an operator, with exit code {child.returncode}")
        start = records[-1]["index"] + 1
        records[-1] |= {"outcome": "crash", "detail": f"exit code {child.returncode}"}


def report(dtype: str, records: list[dict[str, Any]]) -> bool:
    """Print the outcome of a dtype, and return whether it is acceptable."""
    for record in records:
        reason = EXCEPTIONS.get(record["name"])
        if record["outcome"] == "differs" and reason is not None:
            record |= {"outcome": "excepted", "detail": reason}
    counts = Counter(record["outcome"] for record in records)
    share = counts["agrees"] / max(1, len(records))
    exact = sum(record["exact"] for record in records if record["outcome"] == "agrees")
    agreeing = f"{counts['agrees']} of {len(records)} operators agree ({share:.2%}), {exact} of them bitwise"
    print(f"{dtype}: {agreeing} (simulated)", flush=True)
    for record in records:
        if record["outcome"] != "agrees":
            print(f"  {record['outcome']:<8} {record['name']}: {record['detail']}")
    return share >= REQUIRED_SHARE and not counts["differs"] and not counts["crash"]


def run_child(start: int, dtype: str, only: str | None) -> None:
    """Compare the operators from index `start` on, and print a line of JSON before and after each."""
    warnings.simplefilter("ignore")
    # A machine of its own, because other processes may hold every device of the default one.
    os.environ.setdefault("HPU_SIM_RUNTIME_DIR", str(Path(tempfile.gettempdir()) / f"op-sweep-{os.getppid()}"))
    import hpu_sim

    hpu_sim.activate()
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    for index, op in enumerate(op_db):
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if index < start or (only is not None and name != only) or getattr(torch, dtype) not in op.dtypes:
            continue
        record = {"index": index, "name": name, "outcome": "started"}
        print(json.dumps(record), flush=True)
        detail, exact = compare(op, getattr(torch, dtype))
        outcome = "differs" if detail else "agrees"
        print(json.dumps(record | {"outcome": outcome, "detail": detail, "exact": exact}), flush=True)


def compare(op: Any, dtype: Any) -> tuple[str, bool]:
    """Return the first difference over an operator's samples ("" for none), and whether results are bitwise equal."""
    exact = True
    differentiable = dtype.is_floating_point and op.supports_autograd
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), SAMPLES))
    except Exception:  # noqa: BLE001 - the database has no samples of this dtype
        return "", exact
    for number, sample in enumerate(samples):
        arguments = (sample.input, list(sample.args), dict(sample.kwargs))
        try:
            expected = run(op, arguments, differentiable=differentiable)
        except Exception:  # noqa: BLE001, S112 - the CPU refuses the sample
            continue
        try:
            actual = run(op, on_device(arguments), differentiable=differentiable)
            if op.name in UNINITIALIZED:
                actual, expected = without_values(actual), without_values(expected)
            exact &= check(actual, expected)
        except Exception as error:  # noqa: BLE001 - any error is a difference
            return f"sample {number}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", False
    return "", exact


def run(op: Any, arguments: Any, *, differentiable: bool) -> tuple[Any, Any]:
    """Return an operator's results and the gradients of their sum, from one seed."""
    import torch
    from torch.utils._pytree import tree_leaves

    torch.manual_seed(0)
    first, rest, options = arguments
    results = op(first, *rest, **options)
    inputs = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    outputs = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not (differentiable and inputs and outputs):
        return results, None
    sums = [output.abs().sum() if output.is_complex() else output.sum() for output in outputs]
    return results, torch.autograd.grad(sums, inputs, allow_unused=True)


def check(actual: tuple[Any, Any], expected: tuple[Any, Any]) -> bool:
    """Raise unless results and gradients are close, and return whether the results are bitwise equal."""
    import torch
    from torch.utils._pytree import tree_map

    def to_cpu(value: Any) -> Any:
        return value.detach().cpu() if isinstance(value, torch.Tensor) else value

    actual = tree_map(to_cpu, actual)
    expected = tree_map(to_cpu, expected)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    try:
        torch.testing.assert_close(actual[0], expected[0], rtol=0, atol=0, equal_nan=True)
    except AssertionError:
        return False
    return True


def without_values(results: Any) -> Any:
    """Return results with each tensor as zeros of its shape, strides and dtype, on the CPU."""
    import torch
    from torch.utils._pytree import tree_map

    def blank(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype).zero_()
        return value

    return tree_map(blank, results)


def on_device(arguments: Any) -> Any:
    """Return arguments with tensors moved to the device, and CPU devices replaced by it."""
    import torch
    from torch.utils._pytree import tree_map

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return copy_with_strides(value).requires_grad_(value.requires_grad)
        return torch.device("hpu") if value == "cpu" or isinstance(value, torch.device) else value

    return tree_map(move, arguments)


def copy_with_strides(tensor: Any) -> Any:
    """Return a copy on the device with the strides of the original, by copying its whole storage."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or not tensor.numel():
        return tensor.detach().to("hpu")
    storage = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to("hpu")
    return storage.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


if __name__ == "__main__":
    sys.exit(main())
