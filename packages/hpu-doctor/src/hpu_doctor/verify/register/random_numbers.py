"""The card's generator of random numbers."""

import torch

from hpu_doctor.verify.assumption import Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, TORCH, error_of, hpu, opens_card

SUBJECT = Subject("Random numbers")
assume = SUBJECT.assume


@assume(
    source=BRIDGE + "hpu/random.py:47-58",
    expected=["cpu", "torch.uint8"],
    means={"hpu-core": "random states could not be stored in a checkpoint that the CPU loads."},
)
def rng_state_is_on_the_cpu() -> object:
    """`get_rng_state()` is a uint8 tensor on the CPU."""
    state = hpu().get_rng_state()
    return [state.device.type, str(state.dtype)]


@assume(
    source=BRIDGE + "hpu/random.py, default_generators",
    expected=1,
    means={"hpu-deepspeed": "DeepSpeed, which indexes the list, would fail."},
)
def one_generator() -> object:
    """`torch.hpu.random.default_generators` has one generator."""
    return len(hpu().random.default_generators)


@assume(
    source=BRIDGE + "hpu/random.py, device=hpu goes through current_device()",
    expected=True,
    means={"hpu-core": "random states could be saved in a process that must not open a card."},
)
def rng_state_opens_the_card() -> object:
    """`get_rng_state()` opens the card."""
    return opens_card(hpu().get_rng_state)


@assume(
    source=BRIDGE + "hpu/random.py, get_rng_state_all uses index 0",
    expected=False,
    means={"hpu-core": "reading all states would open a card in the launching process."},
)
def all_rng_states_open_no_card() -> object:
    """`get_rng_state_all()` opens no card."""
    return opens_card(hpu().get_rng_state_all)


@assume(
    source=BRIDGE + "hpu/random.py: supports only states len of 1",
    expected=Contains("supports only states len of 1"),
    means={"hpu-core": "states of another number of cards would be loaded."},
)
def set_rng_state_all_takes_one() -> object:
    """`set_rng_state_all` takes a list of one state."""
    return error_of(lambda: hpu().set_rng_state_all([]))


@assume(
    source=BRIDGE + "hpu/random.py: supports only device 0",
    expected=Contains("supports only device 0"),
    means={"hpu-fsdp": "checkpointing of activations could ask for the state of its local rank's index."},
)
def rng_state_of_index_1_is_refused() -> object:
    """`get_rng_state(1)` is refused."""
    return error_of(lambda: hpu().get_rng_state(1))


@assume(
    source=BRIDGE + "backend/random.cpp:30-50",
    expected=True,
    means={
        "hpu-core": "`seed_everything` would not make runs repeatable.",
        "hpu-bucketing": "the warm-up could not restore the state.",
    },
)
def same_seed_same_numbers() -> object:
    """The same seed gives the same numbers."""
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)
        drawn.append(torch.randn(16, device="hpu").cpu())
    return torch.equal(*drawn)


@assume(
    source=BRIDGE + "hpu/random.py, set_rng_state",
    expected=True,
    means={"hpu-core": "a resumed run would draw other numbers."},
)
def state_restores_the_stream() -> object:
    """`set_rng_state` restores the stream of numbers."""
    state = hpu().get_rng_state()
    first = torch.randn(16, device="hpu").cpu()
    hpu().set_rng_state(state.clone())
    return torch.equal(first, torch.randn(16, device="hpu").cpu())


@assume(
    source=BRIDGE + "hpu_ops/eager/random_gen.cpp:23-33",
    expected=[True, False],
    mode="eager",
    means={"hpu-core": "numbers on the card would not change from step to step."},
)
def drawing_advances_the_state() -> object:
    """Drawing on the card advances the card's generator, and not the CPU's."""
    torch.ones(1, device="hpu")
    before, on_cpu = hpu().get_rng_state().clone(), torch.get_rng_state().clone()
    torch.randn(16, device="hpu").cpu()
    return [not torch.equal(before, hpu().get_rng_state()), not torch.equal(on_cpu, torch.get_rng_state())]


@assume(
    source=BRIDGE + "hpu_ops/eager/random_gen.cpp:23-33, one 32-bit number per operator",
    expected=False,
    simulator="hardware",
    reason="its numbers are the CPU's, so that programs can be compared",
    means={"hpu-sim": "a run here could be compared with a card's number by number."},
)
def numbers_differ_from_the_cpu() -> object:
    """The same seed gives other normal numbers on the card than on the CPU."""
    torch.manual_seed(7)
    on_card = torch.randn(16, device="hpu").cpu()
    torch.manual_seed(7)
    return torch.equal(on_card, torch.randn(16))


@assume(
    source=BRIDGE + "hpu_ops/eager/random_gen.cpp:69-102",
    expected=True,
    mode="eager",
    means={"hpu-bucketing": "a warm-up without dropout would change the stream of numbers."},
)
def dropout_of_nothing_draws_nothing() -> object:
    """Dropout with p=0 draws no number."""
    ones = torch.ones(16, device="hpu")
    before = hpu().get_rng_state().clone()
    torch.nn.functional.dropout(ones, p=0.0, training=True).cpu()
    return torch.equal(before, hpu().get_rng_state())


@assume(
    source="torch's definition, which the vendor's kernel follows",
    expected=[True, True],
    means={"hpu-core": "losses with dropout would be scaled otherwise than on the CPU."},
)
def dropout_scales() -> object:
    """Dropout with p=0.5 zeroes about half of the elements and doubles the others."""
    dropped = torch.nn.functional.dropout(torch.ones(4096, device="hpu"), p=0.5).cpu()
    zeros = (dropped == 0).float().mean().item()
    return [0.4 < zeros < 0.6, set(dropped.unique().tolist()) == {0.0, 2.0}]  # noqa: PLR2004 - about half.


@assume(
    source=TORCH + " without the bridge; backend/random.cpp:30-50",
    expected=True,
    means={"hpu-fsdp": "a generator of a rank could not be passed to operators."},
    releases=">=1.19",
)
def generator_object_works() -> object:
    """A generator of the card can be created and passed to an operator."""
    generators = [torch.Generator(device="hpu").manual_seed(5) for _ in range(2)]
    first, second = (torch.rand(8, device="hpu", generator=generator).cpu() for generator in generators)
    return torch.equal(first, second)
