"""Context parallelism on simulated devices; the helper functions run on all ranks."""

import contextlib
import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch.nn.functional import cross_entropy

from hpu_core import HPUAccelerator, SingleHPUStrategy, frameworks
from hpu_fsdp import (
    ContextParallel,
    FabricHPUFSDPStrategy,
    HPUFSDPStrategy,
    UlyssesAttention,
    _transformers,
    context_parallel,
)
from hpu_testing.modules import make_trainer, to_floats

from .conftest import OnRanks

# Any, because it may be missing.
transformers: Any = importlib.import_module("transformers") if importlib.util.find_spec("transformers") else None
needs_transformers = pytest.mark.skipif(
    transformers is None or int(transformers.__version__.partition(".")[0]) < 5, reason="Requires: transformers 5"
)

pytestmark = pytest.mark.filterwarnings(r"ignore::UserWarning:torch\.", r"ignore::FutureWarning:torch\.")

_Base = frameworks.current().pytorch().LightningModule
_Fabric = frameworks.current().fabric().Fabric

LENGTH = 16
STEPS = 3
VOCABULARY = 32


def _llama(**options: Any) -> Any:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    config = transformers.LlamaConfig(**{**sizes, "num_attention_heads": 4, "num_key_value_heads": 4, **options})
    return transformers.LlamaForCausalLM(config)


def _gpt2() -> Any:
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH, bos_token_id=0, eos_token_id=0
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return transformers.GPT2LMHeadModel(config)


class _OwnModel(torch.nn.Module):
    """Language model with one layer of attention of its own."""

    def __init__(self, attention: Any = None) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, 32)
        self.qkv = torch.nn.Linear(32, 96)
        self.attend = UlyssesAttention() if attention is None else UlyssesAttention(attention)
        self.head = torch.nn.Linear(32, VOCABULARY)

    def forward(self, input_ids: torch.Tensor, shift_labels: torch.Tensor, num_items_in_batch: Any, **_: Any) -> Any:
        """Return the loss by name, as transformers' models."""
        hidden = self.embed(input_ids)
        heads = self.qkv(hidden).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        hidden = hidden + self.attend(*heads, None, 0.0, True).transpose(1, 2).flatten(2)
        loss = cross_entropy(self.head(hidden).flatten(0, 1), shift_labels.flatten(), reduction="sum")
        return {"loss": loss / num_items_in_batch}


def _fused_attention(*arguments: Any) -> torch.Tensor:
    from habana_frameworks.torch.hpex.kernels import FusedSDPA

    result: torch.Tensor = FusedSDPA.apply(*arguments)
    return result


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "grouped heads": functools.partial(_llama, num_key_value_heads=2),
    "one key head": functools.partial(_llama, num_key_value_heads=1),
    "sliding window": lambda: transformers.MistralForCausalLM(
        transformers.MistralConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=VOCABULARY,
            sliding_window=5,
        )
    ),
    "gpt2": _gpt2,
}


def _batches(rows: int = 4, *, padded: bool = False) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(VOCABULARY, (rows, LENGTH), generator=generator)
    lengths = torch.randint(LENGTH // 2, LENGTH, (rows, 1), generator=generator) if padded else LENGTH
    mask = (torch.arange(LENGTH) < lengths).long().expand(rows, LENGTH)
    # The same one, so that its loss falls.
    return [{"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}] * STEPS


class _Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of batches."""

    def __init__(self, batches: list[dict[str, torch.Tensor]]) -> None:
        self.rows = [{key: part[row] for key, part in batch.items()} for batch in batches for row in range(4)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.rows[index]


class LanguageModel(_Base):  # type: ignore[misc, valid-type] # The class depends on the framework.
    """Language model; nothing in it knows of context parallelism."""

    def __init__(self, make: Callable[[], Any], *, recompute: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.model = make()
        if recompute:
            # transformers 5 is changing the name.
            enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
            enable()
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss."""
        loss: torch.Tensor = self.model(**batch)["loss"]
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        """Return SGD, because adaptive steps amplify rounding errors."""
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)


def _fit(
    strategy: Any,
    make: Callable[[], Any],
    *,
    padded: bool = False,
    recompute: bool = False,
) -> list[float]:
    """Train on batches of four rows; return the losses, averaged over the ranks."""
    is_single = isinstance(strategy, SingleHPUStrategy)
    trainer = make_trainer(
        strategy=strategy, devices=1 if is_single else -1, max_steps=STEPS, max_epochs=-1, use_distributed_sampler=False
    )
    module = LanguageModel(make, recompute=recompute)
    data = _Rows(_batches(padded=padded))
    # Ranks that share sequences have the same rows, and the others theirs.
    groups = 1 if is_single else max(1, trainer.world_size // strategy.context_parallel_size)
    group = 0 if is_single else trainer.global_rank // strategy.context_parallel_size
    sampler: Any = torch.utils.data.DistributedSampler(data, num_replicas=groups, rank=group, shuffle=False)
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4 // groups, sampler=sampler))
    return to_floats(list(trainer.strategy.reduce(torch.stack(module.losses), reduce_op="mean")))


def _compare(size: int, names: list[str]) -> dict[str, tuple[list[float], list[float]]]:
    """Return losses on one card and with context parallelism, by case."""
    fsdp = functools.partial(HPUFSDPStrategy, context_parallel_size=size)
    results = {}
    for name in names:
        options: dict[str, Any] = {"padded": "padded" in name, "recompute": "recomputed" in name}
        make = MODELS[name.partition(",")[0]]
        results[name] = (_fit(SingleHPUStrategy(), make, **options), _fit(fsdp(), make, **options))
    if size > 2:
        return results
    expected = results["llama"][0]
    results["replicated"] = (expected, _fit(fsdp(sharding_strategy="NO_SHARD"), _llama))
    return results


QUICK = ["llama", "llama, padded", "one key head", "gpt2, padded"]
CASES = [*QUICK, "llama, recomputed", "grouped heads", "sliding window"]


@needs_transformers
@pytest.mark.parametrize(
    ("size", "count", "names"),
    [
        (2, 2, QUICK),
        pytest.param(2, 2, CASES, marks=pytest.mark.slow),
        pytest.param(4, 4, CASES, marks=pytest.mark.slow),
        pytest.param(2, 4, ["llama"], marks=pytest.mark.slow),
    ],
    ids=["2 of 2", "2 of 2, all", "4 of 4", "2 of 4"],
)
def test_sharing_sequences_changes_no_loss(size: int, count: int, names: list[str], on_ranks: OnRanks) -> None:
    """All layouts train as one card does with the whole batch, in float32 up to the order of sums."""
    for results in on_ranks(_compare, size, names, count=count, seconds=300):
        for name, (expected, losses) in results.items():
            # Ranks with other rows average means of rows; without padding, all have as many tokens.
            assert losses == pytest.approx(expected, abs=2e-5), name
            assert expected[-1] < expected[0] - 0.01, name


def _own_model() -> dict[str, Any]:
    """Return losses of a model of its own, with the Trainer and with Fabric."""
    parallel = HPUFSDPStrategy(context_parallel_size=2, auto_wrap_policy={torch.nn.Linear})
    with _whole_batches():
        expected = _fit(SingleHPUStrategy(), _OwnModel)
    results: dict[str, Any] = {"expected": expected, "trainer": _fit(parallel, lambda: _OwnModel(_fused_attention))}
    return {**results, "after it": context_parallel.active().size, "fabric": _fit_with_fabric()}


@contextlib.contextmanager
def _whole_batches() -> Iterator[None]:
    """Give the module what context parallelism adds to a batch, on one card."""

    def shard(module: Any, batch: dict[str, Any], index: int) -> torch.Tensor:
        shifted = torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
        batch = {**batch, "shift_labels": shifted, "num_items_in_batch": (shifted != -100).sum()}
        return original(module, batch, index)

    original = LanguageModel.training_step
    with mock.patch.object(LanguageModel, "training_step", shard):
        yield


def _fit_with_fabric() -> list[float]:
    strategy = FabricHPUFSDPStrategy(context_parallel_size=2, auto_wrap_policy={torch.nn.Linear})
    fabric = _Fabric(accelerator=HPUAccelerator(), strategy=strategy, devices=2)
    fabric.launch()
    module = LanguageModel(_OwnModel)
    model = fabric.setup_module(module.model)
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    losses = []
    for batch in _batches():
        part = fabric.to_device(strategy.context_parallel.shard(batch))
        optimizer.zero_grad()
        loss = model(**part)["loss"]
        fabric.backward(loss)
        optimizer.step()
        losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean"))
    return to_floats(losses)


def test_own_model_shares_sequences(on_ranks: OnRanks) -> None:
    """Its attention is a module, here with the bridge's kernel, and it takes the shifted labels.

    Fabric's program shards its batches.
    """
    for results in on_ranks(_own_model):
        assert results["trainer"] == pytest.approx(results["expected"], abs=2e-5)
        assert results["fabric"] == pytest.approx(results["expected"], abs=2e-5)
        assert results["after it"] == 1


def _refuse_another_batch() -> tuple[str, Any]:
    """Return the error of ranks with different sequences, and what a sampler is told."""
    strategy = FabricHPUFSDPStrategy(context_parallel_size=2)
    fabric = _Fabric(accelerator=HPUAccelerator(), strategy=strategy, devices=2)
    fabric.launch()
    ids = torch.full((1, 2), 9 - strategy.context_parallel.rank)
    with pytest.raises(ValueError, match="must have the same batch") as error:
        strategy.context_parallel.shard({"input_ids": ids})
    return str(error.value), strategy.distributed_sampler_kwargs


def test_ranks_that_share_sequences_have_the_same_batch(on_ranks: OnRanks) -> None:
    for error, sampler in on_ranks(_refuse_another_batch):
        assert "leave the sampler" in error
        assert sampler == {"num_replicas": 1, "rank": 0}


def test_batch_of_a_rank() -> None:
    """Labels are shifted before they are split, so the last token of a part has its successor's label."""
    parallel = ContextParallel(2, 1)
    parallel._is_checked = True
    ids = torch.arange(8).view(1, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])

    part = parallel.shard(
        {"input_ids": ids, "labels": ids.masked_fill(mask == 0, -100), "attention_mask": mask, "n": 3}
    )

    assert part["input_ids"].tolist() == part["position_ids"].tolist() == [[4, 5, 6, 7]]
    assert part["labels"].tolist() == part["shift_labels"].tolist() == [[5, -100, -100, -100]]
    # Five labels of the whole sequence.
    assert part["num_items_in_batch"] == 2.5
    assert part["attention_mask"] is mask
    assert part["n"] == 3
    assert "attention_mask" not in parallel.shard({"input_ids": ids, "attention_mask": torch.ones(1, 8)})


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (lambda ids: (ids, ids), TypeError, "must be a mapping with 'input_ids' .* got tuple"),
        (
            lambda ids: {"input_ids": ids[:, :7]},
            ValueError,
            r"a multiple of `context_parallel_size` \(2\), got 7: pad it",
        ),
        (lambda ids: {"input_ids": ids, "position_ids": ids % 4}, ValueError, "'position_ids' must count by one"),
    ],
)
def test_batches_that_cannot_be_shared(batch: Any, error: type[Exception], message: str) -> None:
    parallel = ContextParallel(2, 0)
    parallel._is_checked = True

    with pytest.raises(error, match=message):
        parallel.shard(batch(torch.arange(8).view(1, 8)))


def test_without_context_parallelism_nothing_changes() -> None:
    batch = ("any", "batch")
    query = torch.ones(1, 2, 3, 4)

    assert ContextParallel().shard(batch) is batch
    assert torch.equal(UlyssesAttention()(query, query, query), query)


def test_heads_must_be_divisible() -> None:
    with pytest.raises(
        ValueError, match=r"the number of heads must be a multiple of `context_parallel_size` \(4\), got 6"
    ):
        context_parallel.exchange(ContextParallel(4), torch.ones(1, 6, 2, 2))


@needs_transformers
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: transformers.T5ForConditionalGeneration(_small_t5()),
            "needs a decoder, got T5ForConditionalGeneration",
        ),
        (lambda: transformers.BertForMaskedLM(_small_bert()), "needs a causal language model, got BertForMaskedLM"),
        (lambda: _llama(attn_implementation="eager"), "must not have `attn_implementation='eager'`"),
    ],
)
def test_models_that_cannot_share(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _transformers.share_attention(torch.nn.Sequential(make()))


def _small_t5() -> Any:
    return transformers.T5Config(d_model=8, d_ff=8, num_layers=1, num_heads=2, d_kv=4, vocab_size=VOCABULARY)


def _small_bert() -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.BertConfig(**sizes, vocab_size=VOCABULARY)


@needs_transformers
def test_attention_of_a_model_is_restored() -> None:
    """With one rank, the shared attention is the model's own."""
    model = _llama().eval()
    ids = torch.arange(8).view(1, 8)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0]])
    expected = model(ids, attention_mask=mask).logits

    restore = _transformers.share_attention(model)
    assert restore is not None
    shared = model(ids, attention_mask=mask).logits
    restore.close()

    assert torch.equal(shared, expected)
    assert model.config._attn_implementation == "sdpa"


def _refused() -> dict[str, str]:
    """Return errors by case."""
    cases: dict[str, Callable[[], Any]] = {
        "divisor": lambda: _fit(HPUFSDPStrategy(context_parallel_size=3), _OwnModel),
        "no attention": lambda: _fit(HPUFSDPStrategy(context_parallel_size=2), lambda: torch.nn.Linear(2, 2)),
    }
    errors = {}
    # Both ranks raise: after an error, each would wait for news of the other.
    with mock.patch.dict(os.environ, HPU_FAILURE_DETECTION="0"):
        for name, case in cases.items():
            with pytest.raises(ValueError, match="context_parallel_size") as raised:
                case()
            errors[name] = str(raised.value)
    return errors


def test_refused_set_ups(on_ranks: OnRanks) -> None:
    for errors in on_ranks(_refused):
        assert "must be a divisor of the number of ranks, 2, got 3" in errors["divisor"]
        assert "needs a model of transformers, or a module with `hpu_fsdp.UlyssesAttention`" in errors["no attention"]
