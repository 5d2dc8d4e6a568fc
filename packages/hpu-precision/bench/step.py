"""Benchmark of a bf16 training step on the simulated device, compared with Lightning's mixed precision on the CPU.

    python packages/hpu-precision/bench/step.py [--release 1.11.0]

A step consists of the plugin's context, forward, backward and AdamW on one batch that is already on the device. The
variants run alternately in one process with one thread, so that other load affects all of them, and the median of the
ratios of their processor times is compared. The times are simulated and do not predict those of a card. Fails if a step
with the bridge's autocast or with our kernels takes more than 1.15 times as long as on the CPU, or one with HMP more
than 1.10 times, or if it cannot be judged.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

LIMITS: Final = {"bf16, bridge": 1.15, "bf16, our kernels": 1.15, "bf16, HMP": 1.10}
_ROUNDS: Final = 200
_WARM_UP: Final = 5
_REFERENCE: Final = "CPU, MixedPrecision"


@dataclass
class Variant:
    """Variant of the training step.

    Attributes:
        run: Function that runs a step.
        casts: Number of casts in a step.
        seconds: Processor times of the steps.
    """

    run: Callable[[], None]
    casts: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Processor time of the fastest step, in milliseconds."""
        return 1000 * min(self.seconds)


def main() -> int:
    """Measure and print the times, and compare them with the limits.

    Returns:
        1 if a step exceeds its limit or cannot be judged, else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", help="SynapseAI release to simulate; one with HMP is measured with HMP")
    release = parser.parse_args().release
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    import hpu_sim

    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("HPU_SIM_RUNTIME_DIR", directory)
        hpu_sim.activate(release=release)
        torch.set_num_threads(1)
        found = []
        for name, make in (("transformer", _transformer), ("convolutions", _convolutions)):
            variants = _measure(make)
            reference = variants[_REFERENCE].best
            print(f"{name}: processor time of a training step (simulated, except on the CPU)")
            for label, variant in variants.items():
                ratio = variant.best / reference
                print(f"  {label:28}{variant.best:9.2f} ms {ratio:6.2f}x {variant.casts:6} casts")
                if label in LIMITS:
                    samples = zip(variant.seconds, variants[_REFERENCE].seconds, strict=True)
                    ratios = tuple(own / other for own, other in samples)
                    found.append(gates.Gate(f"{name}, {label}, of the CPU's", LIMITS[label], ratios))
        _print_context_overhead()
    return gates.report(found)


def _measure(make: Callable[[], tuple[torch.nn.Module, torch.Tensor]]) -> dict[str, Variant]:
    """Run the variants alternately and return them with their times."""
    from lightning.pytorch.plugins.precision import MixedPrecision

    from hpu_core.hmp import load_hmp
    from hpu_precision import HPUPrecisionPlugin, default_op_lists

    variants = {
        _REFERENCE: Variant(_step(make, "cpu", MixedPrecision("bf16-mixed", "cpu").forward_context)),
        "32 bit": Variant(_step(make, "hpu", HPUPrecisionPlugin(32).forward_context)),
    }
    by_default = HPUPrecisionPlugin("bf16-mixed")
    if load_hmp() is None:
        # Not the default lists, for which the bridge needs no kernels of ours.
        by_kernels = HPUPrecisionPlugin("bf16-mixed", bf16_ops=[*default_op_lists().lower, "glu"])
        variants["bf16, bridge"] = Variant(_step(make, "hpu", by_default.forward_context))
        variants["bf16, our kernels"] = Variant(_step(make, "hpu", by_kernels.forward_context))
    else:
        variants["bf16, HMP"] = Variant(_step(make, "hpu", by_default.forward_context))
    for variant in variants.values():
        variant.casts = _count_casts(variant.run)
    for index in range(_WARM_UP + _ROUNDS):
        for variant in variants.values():
            # Not measured, because it installs this variant's op lists.
            variant.run()
            start = time.process_time()
            variant.run()
            if index >= _WARM_UP:
                variant.seconds.append(time.process_time() - start)
    return variants


def _step(
    make: Callable[[], tuple[torch.nn.Module, torch.Tensor]],
    device: str,
    context: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], None]:
    """Return a function that runs one training step."""
    import torch

    model, data = make()
    model, data = model.to(device), data.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run() -> None:
        optimizer.zero_grad()
        with context():
            loss = model(data).float().pow(2).mean()
        loss.backward()
        optimizer.step()

    return run


def _count_casts(run: Callable[[], None]) -> int:
    """Return the number of casts in a step."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    operators: list[object] = []

    class OpRecorder(TorchDispatchMode):
        """Dispatch mode that records operators."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            operators.append(func)
            return func(*args, **(kwargs or {}))

    with OpRecorder():  # type: ignore[no-untyped-call] # torch does not annotate it.
        run()
    return operators.count(torch.ops.aten._to_copy.default)  # noqa: SLF001 - the operator's name


def _print_context_overhead() -> None:
    """Print the time to enter and exit a step's context."""
    from hpu_precision import HPUPrecisionPlugin

    for value in ("bf16-mixed", 32):
        plugin = HPUPrecisionPlugin(value)
        best = float("inf")
        for _ in range(200):
            start = time.perf_counter()
            for _ in range(20):
                with plugin.forward_context():
                    pass
            best = min(best, (time.perf_counter() - start) / 20)
        print(f"entering and exiting a step's context, {value}: {1e6 * best:.1f} us")


def _transformer() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return four encoder layers of width 128, and a batch of shape (8, 32, 128)."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False), torch.randn(8, 32, 128)


def _convolutions() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return two convolutions and two linear layers, and a batch of images of shape (32, 1, 16, 16)."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    return layers, torch.randn(32, 1, 16, 16)


if __name__ == "__main__":
    raise SystemExit(main())
