"""Habana mixed precision (HMP), up to SynapseAI 1.12.

Each program runs in a process of its own, because HMP patches torch permanently.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

_MACHINE: Final = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": "1.11.0", "HPU_SIM_GENERATION": "GAUDI2"}
_START: Final = """
import sys, warnings
import torch
from torch.nn import functional as F
warnings.simplefilter("ignore", DeprecationWarning)
from habana_frameworks.torch.hpex import hmp
warnings.simplefilter("error")
torch.manual_seed(0)
x = torch.randn(4, 4, device="hpu")
low = x.to(torch.bfloat16)
host = torch.randn(4, 4)
def kinds(*tensors):
    print(*(str(tensor.dtype).removeprefix("torch.") for tensor in tensors))
"""


@pytest.fixture
def hmp(output_on: Callable[..., str]) -> Callable[..., list[str]]:
    """Return a function that runs a program with HMP on a release, and returns the lines that it prints."""

    def run(program: str, release: str = "1.11.0", generation: str = "GAUDI2") -> list[str]:
        text = _START + textwrap.dedent(program)
        variables = {**_MACHINE, "HPU_SIM_RELEASE": release, "HPU_SIM_GENERATION": generation}
        return output_on(text, **variables).splitlines()

    return run


def test_importing_hmp_warns(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    program = "import torch; from habana_frameworks.torch.hpex import hmp"

    result = run_python(program, HPU_SIM_DEVICES="1", HPU_SIM_RELEASE="1.12.0")

    assert "DeprecationWarning: HMP is deprecated and will be removed in SynapseAI 1.13.0" in result.stderr


# Programs, and the lines that they print.
_PROGRAMS: Final[dict[str, tuple[str, list[str]]]] = {
    "importing hmp patches nothing": (
        "kinds(x @ x, F.linear(x, x), low.softmax(-1))",
        ["float32 float32 bfloat16"],
    ),
    # Matrix products run in bfloat16, losses in float32 and sums in the widest dtype, through every alias.
    "level 1 casts by the lists": (
        """
        hmp.convert()
        kinds(x @ x, torch.mm(x, x), x.matmul(x), F.linear(x, x, x[0]), torch.relu(x), x.t(), x * x)
        kinds(F.softmax(low, -1), low.log(), F.cross_entropy(low, torch.tensor([0, 1, 2, 3], device="hpu")), low / low)
        kinds(low + x, low + low, torch.cat([low, x]), torch.cat([low, low]), 1 + low, x - low, low.exp())
        kinds(x.sin(), low.sin())
        """,
        [
            " ".join(["bfloat16"] * 7),
            " ".join(["float32"] * 4),
            "float32 bfloat16 float32 bfloat16 bfloat16 float32 bfloat16",
            "float32 bfloat16",
        ],
    ),
    # This applies to the operators that it knows.
    "level 2 keeps all but products in float32": (
        """
        hmp.convert(opt_level="O2")
        images = torch.randn(1, 2, 4, 4, device="hpu")
        kinds(torch.mm(x, x), F.conv2d(images, torch.randn(3, 2, 2, 2, device="hpu")))
        kinds(torch.relu(low), low + low, low.mean(), F.dropout(low))
        kinds(low.sin())
        """,
        ["bfloat16 bfloat16", "float32 float32 float32 float32", "bfloat16"],
    ),
    # Gradients have the dtype of the parameters.
    "results equal those of cast inputs": (
        """
        weight = torch.randn(4, 4, device="hpu", requires_grad=True)
        expected = x.to(torch.bfloat16) @ weight.to(torch.bfloat16)
        hmp.convert()
        output = x @ weight
        print(torch.equal(output, expected))
        output.sum().backward()
        kinds(weight.grad)
        """,
        ["True", "float32"],
    ),
    # Only the input is cast, by position or by keyword.
    "norms do not cast their parameters": (
        """
        from unittest import mock
        seen = []
        stock = torch.layer_norm
        def layer_norm(data, shape, weight=None, bias=None, *rest):
            seen.append((data.dtype, weight.dtype))
            return stock(data, shape, weight, bias, *rest)
        torch.layer_norm = layer_norm
        hmp.convert()
        norm = torch.nn.LayerNorm(4).to("hpu")
        kinds(norm(x), F.layer_norm(input=x, normalized_shape=(4,), weight=norm.weight))
        print({str(kind) for pair in seen for kind in pair[1:]})
        """,
        ["bfloat16 bfloat16", "{'torch.float32'}"],
    ),
    # An in-place operator casts its other operand, and `out` is not cast.
    "outputs keep their dtype": (
        """
        hmp.convert()
        wide, narrow = x.clone(), low.clone()
        address = wide.data_ptr()
        wide += low
        narrow += x
        kinds(wide, narrow)
        print(wide.data_ptr() == address)
        out = torch.empty(4, 4, device="hpu", dtype=torch.bfloat16)
        print(torch.mm(x, x, out=out) is out)
        """,
        ["float32 bfloat16", "True", "True"],
    ),
    "cpu tensors and integers are not cast": (
        """
        hmp.convert()
        kinds(host @ host, host + host, x.int() * 2)
        """,
        ["float32 float32 int32"],
    ),
    # As in the bridge, an error in the context leaves them disabled.
    "casts can be disabled": (
        """
        hmp.convert()
        with hmp.disable_casts():
            kinds(x @ x)
        kinds(x @ x)
        try:
            with hmp.disable_casts():
                raise KeyError
        except KeyError:
            kinds(x @ x)
        """,
        ["float32", "bfloat16", "float32"],
    ),
    "a verbose conversion prints each kind of cast once": (
        """
        hmp.convert(opt_level="O1", isVerbose=True)
        for _ in range(2):
            torch.mm(x, x)
        torch.mm(low, low)
        low.log()
        """,
        [
            "hmp:verbose_mode True",
            "hmp:opt_level O1",
            "hmp:cast mm: torch.float32 to torch.bfloat16 (simulated)",
            "hmp:cast log: torch.bfloat16 to torch.float32 (simulated)",
        ],
    ),
    # It does not patch the functions again.
    "a later conversion replaces the policy": (
        """
        hmp.convert()
        first = torch.mm
        hmp.convert(opt_level="O2")
        print(torch.mm is first)
        kinds(torch.relu(low))
        """,
        ["True", "float32"],
    ),
    # It is the only list known before 1.12.
    "the early list is short": (
        "hmp.convert(); kinds(low.reciprocal(), low.log2())",
        ["bfloat16 float32"],
    ),
}


@pytest.mark.parametrize("behavior", _PROGRAMS)
def test_a_program_prints(behavior: str, hmp: Callable[..., list[str]]) -> None:
    program, expected = _PROGRAMS[behavior]

    assert hmp(program) == expected


def test_lists_can_be_files(hmp: Callable[..., list[str]], tmp_path: Path) -> None:
    """They replace the default lists and the promote list. An unknown operator is printed and ignored."""
    (tmp_path / "bf16").write_text("mm\nadd\n\nnonsense\n", encoding="utf-8")
    (tmp_path / "fp32").write_text("relu\n", encoding="utf-8")

    lines = hmp(
        f"""
        hmp.convert(bf16_file_path={str(tmp_path / "bf16")!r}, fp32_file_path={str(tmp_path / "fp32")!r})
        kinds(torch.mm(x, x), x + x, torch.relu(low), x @ x, low.log(), torch.cat([x, low]))
        """
    )

    unknown = "nonsense OP not supported. Please add it to OPs dict and try again"
    assert lines == [unknown, "bfloat16 bfloat16 float32 float32 bfloat16 float32"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("hmp.convert(opt_level='O3')", "AssertionError Optlevel should be either O1 or O2"),
        ("hmp.convert(bf16_file_path=None)", "TypeError expected str, bytes or os.PathLike object, not NoneType"),
        ("hmp.convert(bf16_file_path='nowhere')", "FileNotFoundError [Errno 2] No such file or directory: 'nowhere'"),
        ("hmp.convert(bf16_file_path=sys.argv[1])", "AssertionError operators in both lists: softmax"),
    ],
)
def test_invalid_arguments_are_the_bridges_errors(
    call: str, expected: str, tmp_path: Path, output_on: Callable[..., str]
) -> None:
    (tmp_path / "list").write_text("softmax\n", encoding="utf-8")
    program = f"{_START}\ntry:\n    {call}\nexcept Exception as error:\n    print(type(error).__name__, error)"

    output = output_on(program, tmp_path / "list", **_MACHINE)

    assert output == expected


@pytest.mark.parametrize("paths", ["'mine', ''", "None, None", "'', None"])
def test_level_2_ignores_lists(paths: str, hmp: Callable[..., list[str]]) -> None:
    """It prints that, also for None, which Lightning passes."""
    lines = hmp(f"hmp.convert('O2', {paths}); kinds(torch.mm(x, x))")

    assert lines == ["Input op list would be overridden in opt_level O2", "bfloat16"]


@pytest.mark.needs_torch("2.2", "matrix products in float16 on the CPU")
def test_the_last_form_casts_to_float16(hmp: Callable[..., list[str]], tmp_path: Path) -> None:
    """It has a float16 list, and the long float32 list."""
    (tmp_path / "fp16").write_text("mm\n", encoding="utf-8")

    lines = hmp(
        f"""
        half = x.half()
        hmp.convert(fp16_file_path={str(tmp_path / "fp16")!r}, low_precision_type=torch.float16)
        kinds(torch.mm(x, x), half.reciprocal(), half + x, low.reciprocal())
        """,
        release="1.12.1",
    )

    assert lines == ["float16 float32 float32 bfloat16"]


def test_the_first_generation_has_no_float16(hmp: Callable[..., list[str]]) -> None:
    """The device raises when an operator casts."""
    lines = hmp(
        """
        hmp.convert(low_precision_type=torch.float16)
        try:
            x @ x
        except RuntimeError as error:
            print(error)
        """,
        release="1.12.1",
        generation="GAUDI",
    )

    assert "float16/half is not supported on Gaudi." in lines[0]


def test_a_model_trains(hmp: Callable[..., list[str]]) -> None:
    """This is how Lightning uses HMP: O2, and no casts in the optimizer's step."""
    lines = hmp(
        """
        hmp.convert(opt_level="O2", bf16_file_path=None, fp32_file_path=None, isVerbose=False)
        layers = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 2)).to("hpu")
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        images = torch.randn(32, 1, 4, 4, device="hpu")
        target = (images.mean((1, 2, 3)) > 0).long()
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), target)
            loss.backward()
            with hmp.disable_casts():
                optimizer.step()
            losses.append(loss.item())
        print(losses[-1] < losses[0] / 2)
        """
    )

    assert lines[-1] == "True"
