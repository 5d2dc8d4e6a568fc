"""Kernels beside the other packages, each in a training that is compared with one without kernels."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from hpu_bucketing import (
    BucketBatchSampler,
    BucketCollate,
    BucketDataLoader,
    BucketPlan,
    HPUWarmup,
    RecompilationMonitor,
)
from hpu_compile import HPUCompile
from hpu_kernels import HPUKernels, replacement
from hpu_precision import HPUPrecisionPlugin
from hpu_testing import Program, machine_env

from .modules import Classifier, losses_of

# AdamW differs by the place of eps.
OPTIONS: Any = {"optimizer": torch.optim.SGD, "momentum": 0.9}


@pytest.fixture
def compiler() -> Iterator[None]:
    """Forget the compilations of other tests."""
    yield
    torch.compiler.reset()


@pytest.mark.skipif(not hasattr(torch, "compiler") or torch.__version__ < "2.5", reason="hpu-compile needs torch 2.5")
# The compiler takes ten times as long on a busy machine.
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("compiler")
def test_compiled_regions_hold_the_kernels() -> None:
    """One graph for all blocks, as without them."""
    plain = losses_of(Classifier(**OPTIONS))
    kernels, compiled = HPUKernels(), HPUCompile()

    fused = losses_of(Classifier(**OPTIONS), kernels, compiled)

    assert torch.allclose(plain, fused, atol=1e-5)
    assert compiled.report is not None
    graphs = [dict(region.graphs) for region in compiled.report.regions if "Block" in region.name]
    assert graphs == [{"training": 1}]


@pytest.mark.parametrize("lists", [{}, {"fp32_ops": ["scaled_dot_product_attention"], "bf16_ops": ["linear"]}])
def test_op_lists_decide_about_attention(lists: Any) -> None:
    """It is computed in the dtype that the list of hpu-precision says, without and with the kernel."""
    dtypes: list[torch.dtype] = []

    class Recording(Classifier):
        def training_step(self, batch: Any) -> torch.Tensor:
            layer: Any = self.net.blocks[0]
            dtypes.append(layer.attention.attend(batch[0]).dtype)
            return super().training_step(batch)

    plugin = HPUPrecisionPlugin("bf16-mixed", **lists)
    plain = losses_of(Recording(**OPTIONS), plugins=[plugin])
    fused = losses_of(Recording(**OPTIONS), HPUKernels(), plugins=[plugin])
    full = losses_of(Classifier(**OPTIONS))

    assert set(dtypes) == {torch.float32 if lists else torch.bfloat16}
    assert (fused - full).abs().max() <= (plain - full).abs().max() + 1e-3


def test_attention_beside_layers_in_fp8_is_the_kernels_in_bfloat16() -> None:
    dtypes: set[torch.dtype] = set()

    class Recording(Classifier):
        def training_step(self, batch: Any) -> torch.Tensor:
            dtypes.add(functional.scaled_dot_product_attention(batch[0], batch[0], batch[0]).dtype)
            return super().training_step(batch)

        def on_train_end(self) -> None:
            outcomes.update(replacement.calls)

    outcomes: set[tuple[str, str]] = set()
    losses = []
    for module, kernels in ((Classifier(**OPTIONS), []), (Recording(**OPTIONS), [HPUKernels()])):
        plugin = HPUPrecisionPlugin("fp8")
        plugin.convert_modules(module.net.blocks, replace_layers=True)
        losses.append(losses_of(module, *kernels, plugins=[plugin]))

    assert dtypes == {torch.bfloat16}
    assert ("scaled_dot_product_attention", "FusedSDPA") in outcomes
    assert torch.allclose(losses[0], losses[1], atol=2e-2)


class Reader(Classifier):
    """Classifier of texts of variable length, by their first token."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.embed = torch.nn.Embedding(32, 16)

    def training_step(self, batch: Any) -> torch.Tensor:
        ids, is_padding = batch["input_ids"], batch["attention_mask"] == 0
        return super().training_step([self.embed(ids), ids[:, 0] % 4, is_padding])


def test_buckets_compile_nothing_after_the_warm_up() -> None:
    texts: Any = [{"input_ids": [1 + index % 7, *range(1, 2 + index % 14)]} for index in range(32)]
    lengths = [len(each["input_ids"]) for each in texts]
    plan = BucketPlan.from_lengths(lengths, batch_size=4, align=4)
    losses = []
    for kernels in ([], [HPUKernels()]):
        sampler = BucketBatchSampler(lengths, plan, batch_size=4)
        loader = BucketDataLoader(texts, sampler, collate_fn=BucketCollate(plan), num_workers=0)
        callbacks = [HPUWarmup(), RecompilationMonitor("error"), *kernels]
        losses.append(losses_of(Reader(**OPTIONS), *callbacks, loader=loader))

    assert len(plan.boundaries) > 1
    assert torch.allclose(losses[0], losses[1], atol=1e-5)


_GRAPHS = """
import torch
from hpu_bucketing import HPUGraphs
from hpu_kernels import HPUKernels, replacement
from tests.modules import Classifier, losses_of, make_loader

torch.set_num_threads(1)
outcomes = {}


class Counting(Classifier):
    def on_train_end(self):
        outcomes.update(replacement.calls)


kernels = HPUKernels()
options = dict(optimizer=torch.optim.SGD, momentum=0.9)
plain = losses_of(Classifier(**options))
fused = losses_of(Counting(**options), kernels, HPUGraphs("net", have_grad_accumulation=True))
assert torch.allclose(plain, fused, atol=1e-5), (plain, fused)
assert ("scaled_dot_product_attention", "FusedSDPA") in outcomes, outcomes
print("same")
"""


@pytest.mark.slow
def test_graphs_of_lazy_mode_hold_the_kernels(tmp_path: Path) -> None:
    """A process of its own, because a process has one mode."""
    environment = machine_env(1, tmp_path, PT_HPU_LAZY_MODE="1", PYTHONPATH=str(Path(__file__).parent.parent))
    with Program([sys.executable, "-W", "ignore", "-c", _GRAPHS], environment) as program:
        done = program.wait(120)

    assert "same" in done.output, done.output
