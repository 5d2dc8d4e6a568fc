"""Gate for what the strategy adds to a training step of DeepSpeed's engine.

    python packages/hpu-deepspeed/bench/step.py

Fabric trains a model with the strategy, and DeepSpeed's engine alone a copy of it with the same configuration, on one
simulated card. Their steps alternate in one process with one thread, until the median of their ratios is known well
enough. Run it on an idle machine. The exit code is 1 if a limit is missed or cannot be judged.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT: Final = 1.05
_WIDTH: Final = 512
_MOST: Final = 800


def make_steps(stage: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return functions that train one step with the strategy, and with the engine alone.

    Args:
        stage: ZeRO stage.
    """
    import deepspeed
    import torch
    from torch import nn

    from hpu_core import frameworks
    from hpu_deepspeed.fabric import HPUDeepSpeedStrategy

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU())
    other = copy.deepcopy(model)
    batch = torch.randn(64, _WIDTH, device="hpu")

    fabric: Any = frameworks.current().fabric()
    strategy = HPUDeepSpeedStrategy(stage=stage)
    launched = fabric.Fabric(accelerator="hpu", devices=1, strategy=strategy)
    launched.launch()
    configuration = copy.deepcopy(strategy.config)
    module, optimizer = launched.setup(model, torch.optim.Adam(model.parameters()))
    engine, *_ = deepspeed.initialize(
        model=other.to("hpu"),
        optimizer=torch.optim.Adam(other.parameters()),
        config=configuration,
        dist_init_required=False,
    )

    def step() -> None:
        loss = module(batch).square().mean()
        launched.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    def step_of_engine() -> None:
        loss = engine(batch).square().mean()
        engine.backward(loss)
        engine.step()

    return step, step_of_engine


def measure(stage: int) -> gates.Gate:
    """Measure steps of both kinds alternately."""
    name = f"ZeRO stage {stage}, of DeepSpeed's engine"
    return gates.measure_steps(name, _LIMIT, *make_steps(stage), most=_MOST)


def main() -> int:
    """Measure every stage, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, nargs="+", default=[1, 2, 3], choices=(1, 2, 3))
    stages = parser.parse_args().stages

    import hpu_sim

    with tempfile.TemporaryDirectory(prefix="hpu-deepspeed-bench-") as folder:
        os.environ |= {"HPU_SIM_RUNTIME_DIR": folder, "PT_HPU_LAZY_MODE": "0"}
        hpu_sim.activate()
        import torch

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        return gates.report([measure(stage) for stage in stages])


if __name__ == "__main__":
    sys.exit(main())
