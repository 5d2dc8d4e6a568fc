"""Benchmark of reading a large trace, as the published bridge (1.19.0) rewrites torch's file.

    python packages/hpu-profiler/bench/large_trace.py --steps 50

It prints the processor time and the peak memory of `hpu-profiler report` with the page.

A step of 100 ms has 40,000 events: for each call of an operator, the operator, the one that it calls, the launch and a
kernel; and an all-reduce on 24 network ports. 50 steps are 2 million events and 0.4 GB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

PID: Final = 4019
STEP: Final = 100_000.0
PORTS: Final = 24
CALLS: Final = 9_990
#: Time from the start of one call to that of the next.
PERIOD: Final = 9.0
OPERATORS: Final = ("linear", "matmul", "softmax", "layer_norm", "gelu", "dropout", "add", "mul", "copy_", "view")


def main() -> None:
    """Write a trace of a number of steps, and measure a report on it."""
    parser = argparse.ArgumentParser(description="Measure what reading a large trace costs.")
    parser.add_argument("--steps", type=int, default=10, help="number of steps")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        _write_trace(path, steps)
        program = "from hpu_profiler.cli import main; main()"
        command = [sys.executable, "-c", program, "report", str(path), "--html", str(path.with_suffix(".html"))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own interpreter.
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = path.stat().st_size
    seconds = used.ru_utime + used.ru_stime
    print(f"{size / 1e6:.0f} MB, {4 * CALLS * steps} events: {seconds:.1f} s, {used.ru_maxrss / 1e3:.0f} MB of memory")


def _write_trace(path: Path, steps: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"deviceProperties":[{"name":"GAUDI2","totalGlobalMem":103079215104}],"traceEvents":[')
        file.write('{"args":{"name":"/device:HPU:0"},"name":"process_name","ph":"M","pid":0,"tid":0,"ts":0.0}')
        for tid in (6000, 7000, *range(14_000, 14_000 + PORTS)):
            lane = {6: "MME", 7: "TPC", 14: "NIC"}[tid // 1000] + str(tid % 1000)
            file.write(f',{{"args":{{"name":"{lane}"}},"name":"thread_name","ph":"M","pid":0,"tid":{tid}}}')
        # torch's events come first, the bridge's after them.
        for step in range(steps):
            _write_host(file, step)
        for step in range(steps):
            _write_device(file, step)
        file.write('],"with_stack":0}\n')


def _write_host(file: IO[str], step: int) -> None:
    start = step * STEP
    _write(file, "", "user_annotation", f"ProfilerStep#{step}", PID, PID, start, STEP)
    for call in range(CALLS):
        time = start + call * PERIOD
        number = 2 * (step * CALLS + call) + 1
        name = OPERATORS[call % len(OPERATORS)]
        _write(file, _operator_arguments(number), "cpu_op", f"aten::{name}", PID, PID, time, 8.0)
        _write(file, _operator_arguments(number + 1), "cpu_op", f"aten::_{name}", PID, PID, time + 1, 6.0)


def _operator_arguments(number: int) -> str:
    return f'"Ev Idx":{number},"External id":{number},"Record function id":0,"Sequence number":{number}'


def _write_device(file: IO[str], step: int) -> None:
    start = step * STEP
    for call in range(CALLS):
        time = start + call * PERIOD
        recipe = call % 997 + 1
        names = f'"eventHandle":"0x0","recipeId":{recipe},"recipeName":"r_{recipe}","streamHandle":"0x7a10"'
        _write(file, names, "Runtime", "synLaunch_enqueueWithExternalEvents", 2, 7345, time + 2, 4.0)
        tid = 6000 if call % 10 < 2 else 7000 + call % PORTS  # noqa: PLR2004 - two of ten operators are products
        _write(file, f'"dataType":"bf16","device":0,{names}', "Kernel", f"toy_{call % 10}", 0, tid, time + 7, 8.5)
    for port in range(PORTS):
        _write(file, "", "Runtime", "nic_toy_send", 0, 14_000 + port, start + 90_000, 8_000.0)


def _write(  # noqa: PLR0913, PLR0917 - the fields of an event
    file: IO[str], arguments: str, category: str, name: str, pid: int, tid: int, start: float, duration: float
) -> None:
    file.write(
        f',{{"args":{{{arguments}}},"cat":"{category}","dur":{duration},"name":"{name}","ph":"X","pid":{pid},"tid":{tid},'
        f'"ts":{start:.3f}}}'
    )


if __name__ == "__main__":
    main()
