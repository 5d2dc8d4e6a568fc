"""Sweep over torch's operator database that compares the simulated device with the CPU, forward and backward.

    python packages/hpu-sim/sweep/op_sweep.py [--dtype float32 ...] [--only NAME] [--every N]

An operator agrees if its results and gradients are close to the CPU's by torch.testing's tolerances. Bitwise equal
results are counted separately: some of LAPACK's depend on the alignment of memory, and autograd may add gradients in
another order. Where the CPU lacks float16, bfloat16 or float8, the device must refuse it too, or agree with float32,
rounded once. The database has no samples of float8: those of float32 are rounded, for the operators whose float8 the
bridge's table names. Each known exception has its reason in EXCEPTIONS; with HPU_SIM_STRICT=1 there are those of
STRICT_EXCEPTIONS and of complex dtypes as well, and no share is required. The operators run in a child process, which
is restarted after an operator that crashes it. The exit code is 1 if an operator crashed, if one disagreed without a
reason, or if too few agree.
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

DTYPES: Final = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "bool")
LOW_PRECISION: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
REQUIRED_SHARE: Final = {"float32": 0.995}
DEFAULT_SHARE: Final = 0.99
SAMPLES: Final = 12  # per operator and dtype
REPORT_LINES: Final = 30

_SPARSE = "hpu has no sparse tensors"
_CHUNKS = "torch selects the chunk size by device, and bfloat16 sums depend on it"
# Only shapes, strides and dtypes of uninitialized memory can be compared.
UNINITIALIZED: Final = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# torch requires these operators' tensor arguments besides the input on the CPU, for every accelerator.
CPU_ARGUMENTS: Final = {"tensor_split"}
EXCEPTIONS: Final = {
    "sparse.sampled_addmm": _SPARSE,
    "sparse.mm.reduce": _SPARSE,
    "to_sparse": _SPARSE,
    "nn.functional.linear_cross_entropy.chunked": _CHUNKS,
    "nn.functional.linear_cross_entropy.chunked_none": _CHUNKS,
}
# What only a strict device does otherwise than the CPU, as a card does.
STRICT_EXCEPTIONS: Final = {
    "complex": "its result is on the CPU, and its gradient, too",
    "rot90": "torch composes it of transpose_, which lazy mode refuses",
    "nn.functional.scaled_dot_product_attention": "the device takes torch's math path, the CPU another",
}
COMPLEX_REFUSED: Final = "Complex datatype is not supported on HPU device."


def main() -> int:
    """Run the sweep, and print the outcome of each dtype."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="sweep this dtype instead of all; repeatable")
    parser.add_argument("--only", help="sweep this operator only")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="sweep every N-th operator only")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        run_child(options.child, options.dtype[0], options.only, options.every)
        return 0
    failed = False
    for dtype in options.dtype or DTYPES:
        failed |= not report(dtype, sweep(dtype, options.only, options.every))
    return int(failed)


def sweep(dtype: str, only: str | None, every: int) -> list[dict[str, Any]]:
    """Return a record per operator from child processes, which may crash."""
    records: list[dict[str, Any]] = []
    start = 0
    while True:
        command = [sys.executable, __file__, "--child", str(start), "--dtype", dtype, "--every", str(every)]
        command += ["--only", only] if only else []
        child = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this file
        records += [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        if child.returncode == 0:
            return [record for record in records if record["outcome"] != "started"]
        if not records or records[-1]["outcome"] != "started":
            raise RuntimeError(
                f"the child process failed outside of an operator, with exit code {child.returncode}: {child.stderr}"
            )
        start = records[-1]["index"] + 1
        detail = f"exit code {child.returncode}{crash_report(child.stderr)}"
        records[-1] |= {"outcome": "crash", "detail": detail}


def crash_report(errors: str) -> str:
    """Return the report of a sanitizer in the error output of a crash, on lines of its own, or an empty string."""
    lines = errors.splitlines()
    marks = ("ERROR: AddressSanitizer", "runtime error:")
    first = next((number for number, line in enumerate(lines) if any(mark in line for mark in marks)), len(lines))
    return "".join(f"\n    {line}" for line in lines[first : first + REPORT_LINES])


def report(dtype: str, records: list[dict[str, Any]]) -> bool:
    """Print the outcome of a dtype, and return whether it is acceptable."""
    is_strict = os.environ.get("HPU_SIM_STRICT", "") not in {"", "0"}
    for record in records:
        reason = EXCEPTIONS.get(record["name"])
        if is_strict and reason is None:
            refused = "the device has no complex dtypes" if COMPLEX_REFUSED in record.get("detail", "") else None
            reason = STRICT_EXCEPTIONS.get(record["name"], refused)
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
    required = 0.0 if is_strict else REQUIRED_SHARE.get(dtype, DEFAULT_SHARE)
    return share >= required and not counts["differs"] and not counts["crash"]


def run_child(start: int, dtype: str, only: str | None, every: int) -> None:
    """Compare every N-th operator from index `start` on, and print a line of JSON before and after each."""
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
        if index < start or index % every or (only is not None and name != only) or not supports(op, dtype):
            continue
        record = {"index": index, "name": name, "outcome": "started"}
        print(json.dumps(record), flush=True)
        detail, exact = compare(op, getattr(torch, dtype))
        outcome = "differs" if detail else "agrees"
        print(json.dumps(record | {"outcome": outcome, "detail": detail, "exact": exact}), flush=True)


def supports(op: Any, dtype: str) -> bool:
    """Return whether the sweep of a dtype includes an operator."""
    import torch

    from hpu_sim.data import op_support

    if not dtype.startswith("float8"):
        return getattr(torch, dtype) in op.dtypes
    named = op_support.device_dtypes("GAUDI2")
    cpp_name = dtype.capitalize()
    return op.name in {name.partition(".")[0].rstrip("_") for name, dtypes in named.items() if cpp_name in dtypes}


def compare(op: Any, dtype: Any) -> tuple[str, bool]:
    """Return the first difference over an operator's samples ("" for none), and whether results are bitwise equal."""
    import torch

    exact = True
    is_float8 = str(dtype).startswith("torch.float8")
    differentiable = dtype.is_floating_point and op.supports_autograd and not is_float8
    sample_dtype = torch.float32 if is_float8 else dtype
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", sample_dtype, requires_grad=differentiable), SAMPLES))
    except Exception:  # noqa: BLE001 - the database has no samples of this dtype
        return "", exact
    for number, sample in enumerate(samples):
        arguments = (sample.input, list(sample.args), dict(sample.kwargs))
        if is_float8:
            arguments = cast(arguments, torch.float32, dtype)
        try:
            expected, is_rounded = run_on_cpu(op, arguments, dtype, differentiable=differentiable)
        except Exception:  # noqa: BLE001, S112 - the CPU refuses the sample
            continue
        try:
            moved = on_device(arguments)
            if op.name in CPU_ARGUMENTS:
                moved = (moved[0], *arguments[1:])
            actual = run(op, moved, differentiable=differentiable)
            if op.name in UNINITIALIZED:
                actual, expected = without_values(actual), without_values(expected)
            exact &= check(actual, expected)
        except Exception as error:  # noqa: BLE001 - any error is a difference
            if is_rounded and "not implemented for" in str(error):
                continue
            return f"sample {number}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", False
    return "", exact


def run_on_cpu(op: Any, arguments: Any, dtype: Any, *, differentiable: bool) -> tuple[Any, bool]:
    """Return an operator's results, and whether they are float32's, rounded, because the CPU lacks the dtype."""
    import torch

    try:
        return run(op, arguments, differentiable=differentiable), False
    except Exception:
        if str(dtype).removeprefix("torch.") not in LOW_PRECISION:
            raise
    wide = run(op, cast(arguments, dtype, torch.float32), differentiable=differentiable)
    return cast(wide, torch.float32, dtype), True


def cast(values: Any, source: Any, target: Any) -> Any:
    """Return values with each tensor of one dtype in another, and each such dtype replaced."""
    import torch
    from torch.utils._pytree import tree_map

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype == source:
            return value.detach().to(target).requires_grad_(value.requires_grad)
        return target if value is source else value

    return tree_map(convert, values)


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
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().cpu()
        # torch.testing does not compare float8.
        return value.float() if str(value.dtype).startswith("torch.float8") else value

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
