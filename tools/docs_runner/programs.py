"""Programs made of Python blocks: one per Trainer, with what the block leaves out before it and a training after it."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The statement that defines each name which documents use without defining it. `{pytorch}` and `{fabric}` are the two
# halves of the framework. Names of this repository are missing on purpose: a page has to show where they come from.
DEFINITIONS: Final = {
    "DeepSpeedPrecisionPlugin": "from {pytorch}.plugins import DeepSpeedPrecisionPlugin",
    "HPUAccelerator": "from lightning_habana.pytorch.accelerator import HPUAccelerator",
    "HPUDeepSpeedStrategy": "from lightning_habana.pytorch.strategies import HPUDeepSpeedStrategy",
    "LightningModule": "from {pytorch} import LightningModule",
    "List": "from typing import List",
    "LitClassifier": "from fixtures import Model as LitClassifier",
    "MNISTDataModule": "from fixtures import DataModule as MNISTDataModule",
    "TestCB": "from {pytorch} import Callback as TestCB",
    "Trainer": "from {pytorch} import Trainer",
    "Tuple": "from typing import Tuple",
    "_TORCH_LRSCHEDULER": "from torch.optim.lr_scheduler import LRScheduler as _TORCH_LRSCHEDULER",
    "batch_size": "batch_size = 64",
    "model": "from fixtures import AdamModel; model = AdamModel()",
    "nn": "from torch import nn",
    "torch": "import torch",
    "train_loader": "from fixtures import DataModule; train_loader = DataModule(batch_size=8).train_dataloader()",
    "train_one_step": "from fixtures import train_one_step",
}
# Cards of a machine for a Trainer that does not name a number.
_DEFAULT_DEVICES: Final = 2
_ELLIPSIS_BODY: Final = re.compile(r"^( +)\.\.\.$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """A program to run.

    Attributes:
        text: The source.
        devices: Number of simulated cards per machine.
        nodes: Environment variables of each machine.
    """

    text: str
    devices: int
    nodes: tuple[Mapping[str, str], ...]


def make_programs(text: str, commands: Sequence[str]) -> list[Program]:
    """Return a program for each Trainer of a block, with everything of the block but its other Trainers."""
    assignments = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    trainers = [node for node in assignments if ast.unparse(node.targets[0]) == "trainer"]
    lines = text.splitlines()
    programs = []
    for trainer in trainers:
        others = [range(node.lineno, (node.end_lineno or 0) + 1) for node in trainers if node is not trainer]
        kept = "\n".join(line for number, line in enumerate(lines, 1) if not any(number in span for span in others))
        devices = _int_keyword(trainer, "devices") or _DEFAULT_DEVICES
        programs.append(Program(_complete(kept), devices, _nodes(trainer, commands)))
    return programs


def framework(text: str) -> str:
    """Return which distribution of the framework a block is written for."""
    return "pytorch_lightning" if "pytorch_lightning" in text else "lightning"


def missing_definitions(text: str) -> list[str]:
    """Return the statements that define the names which a block uses and does not define."""
    pytorch, fabric = "lightning.pytorch", "lightning.fabric"
    if framework(text) == "pytorch_lightning":
        pytorch, fabric = "pytorch_lightning", "lightning_fabric"
    names = (name for name in _undefined_names(text) if name in DEFINITIONS)
    return [DEFINITIONS[name].format(pytorch=pytorch, fabric=fabric) for name in names]


def _complete(text: str) -> str:
    # In the body of a class, `vars()` is the namespace of the class.
    filled = _ELLIPSIS_BODY.sub(r"\1__import__('fixtures').add_missing_methods(vars())", text)
    return textwrap.dedent(
        """\
        {definitions}
        if __name__ == "__main__":
        {block}
            __import__("fixtures").train_and_report(globals())
        """
    ).format(definitions="\n".join(missing_definitions(text)), block=textwrap.indent(filled, "    "))


def _undefined_names(text: str) -> list[str]:
    """Return the names that a block uses before it binds them, in alphabetical order."""
    undefined: set[str] = set()
    defined: set[str] = set()
    for statement in ast.parse(text).body:
        nodes = list(ast.walk(statement))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        bound |= {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        bound |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
        used = {node.id for node in names if isinstance(node.ctx, ast.Load)} - defined
        # The value of an assignment is evaluated first: `model = convert(model)` uses a model.
        undefined |= used if isinstance(statement, ast.Assign) else used - bound
        defined |= bound
    return sorted(undefined)


def _int_keyword(node: ast.stmt, name: str) -> int | None:
    """Return the int passed by this name in any call below a node; None if there is none."""
    for call in ast.walk(node):
        if isinstance(call, ast.keyword) and call.arg == name and isinstance(call.value, ast.Constant):
            return call.value.value if isinstance(call.value.value, int) else None
    return None


def _nodes(trainer: ast.stmt, commands: Sequence[str]) -> tuple[Mapping[str, str], ...]:
    """Return the variables that the document's commands set on each machine; one empty mapping for one machine."""
    if _int_keyword(trainer, "num_nodes") is None:
        return ({},)
    variables = [dict(re.findall(r"(\w+)=(\S+)", command)) for command in commands]
    return tuple(node for node in variables if "NODE_RANK" in node)
