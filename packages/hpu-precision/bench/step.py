"""Time a training step in bf16 on the simulated card, against Lightning's own mixed precision on the CPU.

    python packages/hpu-precision/bench/step.py [--release 1.11.0]

A step is the plugin's context, forward, backward and AdamW on one batch that is in place. The kinds of step take turns
in one process with one thread, so that whatever else the machine does hits all of them, and the processor times of the
fastest are compared. The figures are simulated: they say nothing about a card. Fails where a step by the bridge's
autocast or by our kernels takes more than 1.15 times as long as on the CPU.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

LIMIT: Final = 1.15
JUDGED: Final = ("bf16 by the bridge", "bf16 by our kernels", "bf16 by HMP")
_ROUNDS: Final = 200
_WARM_UP: Final = 5
_REFERENCE: Final = "CPU, MixedPrecision"


@dataclass
class Kind:
    """One way to run the step.

    Attributes:
        run: Runs it once.
        casts: How many casts it takes.
        seconds: Processor time of each step so far.
    """

    run: Callable[[], None]
    casts: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Processor time of the fastest step, in milliseconds."""
        return 1000 * min(self.seconds)


def main() -> int:
    """Measure, show, and compare with the limit.

    Returns:
        0, or 1 where a step takes too long.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", help="the SynapseAI release to play; one with HMP is timed with HMP")
    release = parser.parse_args().release
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch

    import hpu_sim

    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("HPU_SIM_RUNTIME_DIR", folder)
        hpu_sim.activate(release=release)
        torch.set_num_threads(1)
        worst = 0.0
        for name, make in (("transformer", _transformer), ("convolutions", _convolutions)):
            kinds = _measure(make)
            reference = kinds[_REFERENCE].best
            print(f"{name}: processor time of a training step (simulated, but for the CPU)")
            for kind, measured in kinds.items():
                ratio = measured.best / reference
                print(f"  {kind:28}{measured.best:9.2f} ms {ratio:6.2f}x {measured.casts:6} casts")
                worst = max(worst, ratio if kind in JUDGED else 0)
        _print_entering()
    print(f"bf16 takes at most {worst:.2f}x Lightning's own on the CPU; the limit is {LIMIT}x")
    return 0 if worst <= LIMIT else 1


def _measure(make: Callable[[], tuple[torch.nn.Module, torch.Tensor]]) -> dict[str, Kind]:
    """Run every kind of step in turn and return what was measured."""
    from lightning.pytorch.plugins.precision import MixedPrecision

    from hpu_core import bridge
    from hpu_precision import HPUPrecisionPlugin, default_op_lists

    kinds = {
        _REFERENCE: Kind(_step(make, "cpu", MixedPrecision("bf16-mixed", "cpu").forward_context)),
        "32 bit": Kind(_step(make, "hpu", HPUPrecisionPlugin(32).forward_context)),
    }
    by_default = HPUPrecisionPlugin("bf16-mixed")
    if bridge.hmp() is None:
        # An op more than the default lists have, so that the bridge's own autocast does not do.
        by_kernels = HPUPrecisionPlugin("bf16-mixed", bf16_ops=[*default_op_lists().lower, "glu"])
        kinds["bf16 by the bridge"] = Kind(_step(make, "hpu", by_default.forward_context))
        kinds["bf16 by our kernels"] = Kind(_step(make, "hpu", by_kernels.forward_context))
    else:
        kinds["bf16 by HMP"] = Kind(_step(make, "hpu", by_default.forward_context))
    for kind in kinds.values():
        kind.casts = _casts(kind.run)
    for index in range(_WARM_UP + _ROUNDS):
        for kind in kinds.values():
            # Once more, because putting other lists in place is no part of a step.
            kind.run()
            begin = time.process_time()
            kind.run()
            if index >= _WARM_UP:
                kind.seconds.append(time.process_time() - begin)
    return kinds


def _step(
    make: Callable[[], tuple[torch.nn.Module, torch.Tensor]],
    device: str,
    context: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], None]:
    """Return a function that trains a model by one step."""
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


def _casts(run: Callable[[], None]) -> int:
    """Count the changes of a type in a step."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[object] = []

    class Noting(TorchDispatchMode):
        """Notes the operators that run."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Noting():  # type: ignore[no-untyped-call] # torch does not annotate it.
        run()
    return seen.count(torch.ops.aten._to_copy.default)  # noqa: SLF001 - the operator's name


def _print_entering() -> None:
    """Show what it costs to enter and leave a step's context."""
    from hpu_precision import HPUPrecisionPlugin

    for value in ("bf16-mixed", 32):
        plugin = HPUPrecisionPlugin(value)
        best = float("inf")
        for _ in range(200):
            begin = time.perf_counter()
            for _ in range(20):
                with plugin.forward_context():
                    pass
            best = min(best, (time.perf_counter() - begin) / 20)
        print(f"entering and leaving a step's context, {value}: {1e6 * best:.1f} us")


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
