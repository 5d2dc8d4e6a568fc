"""Programs of code blocks: each as it stands, with what it leaves out before it and a training after it."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from missing import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from documents import Block

# On a machine with as many cards as the block names, and where it names none, with this many.
_CARDS: Final = 2

_LEFT_OUT: Final = re.compile(r"^( +)\.\.\.$", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """What is run of a block.

    Attributes:
        block: The block.
        text: The program.
        cards: How many simulated cards its machine has.
        nodes: The variables of each machine that it is started on.
        framework: "lightning" or "pytorch_lightning".
    """

    block: Block
    text: str
    cards: int
    nodes: tuple[Mapping[str, str], ...]
    framework: str


def of_block(block: Block, commands: list[Block], missing: Mapping[str, str] = MISSING) -> list[Program]:
    """Return the programs of a Python block: one for each Trainer that it makes, with all that is no Trainer.

    Args:
        block: The block.
        commands: The commands of the same document by which a training is started on several machines.
        missing: What documents leave out, as `missing.MISSING` has it.
    """
    framework = framework_of(block)
    tree = ast.parse(block.text)
    trainers = [node for node in tree.body if _makes_trainer(node)]
    lines = block.text.splitlines()
    programs = []
    for own in trainers:
        others = {number for node in trainers if node is not own for number in range(node.lineno, _end(node) + 1)}
        kept = "\n".join(line for number, line in enumerate(lines, start=1) if number not in others)
        text = _completed(kept, left_out(kept, framework, missing))
        programs.append(Program(block, text, _cards(own), _nodes(own, commands), framework))
    return programs


def framework_of(block: Block) -> str:
    """Return which of the framework's two distributions a block is written for."""
    return "pytorch_lightning" if "pytorch_lightning" in block.text else "lightning"


def left_out(text: str, framework: str, missing: Mapping[str, str]) -> list[str]:
    """Return the statements that define what a block uses and does not define.

    Args:
        text: The block's.
        framework: "lightning" or "pytorch_lightning".
        missing: A statement for each name, with the framework's two halves in braces.
    """
    parts = {"lightning": ("lightning.pytorch", "lightning.fabric")}
    pytorch, fabric = parts.get(framework, ("pytorch_lightning", "lightning_fabric"))
    return [missing[name].format(pytorch=pytorch, fabric=fabric) for name in _undefined(text) if name in missing]


def _completed(text: str, before: list[str]) -> str:
    # In the body of a class, `vars()` is what becomes its namespace.
    filled = _LEFT_OUT.sub(r"\1__import__('fixtures').complete(vars())", text)
    return textwrap.dedent(
        """\
        {before}
        if __name__ == "__main__":
        {block}
            __import__("fixtures").finish(globals())
        """
    ).format(before="\n".join(before), block=textwrap.indent(filled, "    "))


def _undefined(text: str) -> list[str]:
    """Return the names that a block uses and has not defined by then, in alphabetical order."""
    undefined: set[str] = set()
    used_later: set[str] = set()
    defined = set(vars(builtins))
    for statement in ast.parse(text).body:
        # What is assigned is not there yet when it is made: `model = convert(model)` uses a model.
        used, made = _names(statement.value if isinstance(statement, ast.Assign) else statement)
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            used_later |= used - made
        else:
            undefined |= used - made - defined
        defined |= _names(statement)[1]
    return sorted(undefined | (used_later - defined))


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the names that code uses, and those that it defines."""
    used: set[str] = set()
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).partition(".")[0])
    return used, made


def _makes_trainer(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "trainer"


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _keyword(node: ast.stmt, name: str) -> int | None:
    """Return the number that a Trainer is given by this name, at any depth; None where it is given none."""
    for call in ast.walk(node):
        if isinstance(call, ast.keyword) and call.arg == name and isinstance(call.value, ast.Constant):
            return call.value.value if isinstance(call.value.value, int) else None
    return None


def _cards(trainer: ast.stmt) -> int:
    return _keyword(trainer, "devices") or _CARDS


def _nodes(trainer: ast.stmt, commands: list[Block]) -> tuple[Mapping[str, str], ...]:
    """Return the variables that the document's commands set on each machine; nothing where one machine is enough."""
    if _keyword(trainer, "num_nodes") is None:
        return ({},)
    pairs = [dict(re.findall(r"(\w+)=(\S+)", command.text)) for command in commands]
    return tuple(pair for pair in pairs if "NODE_RANK" in pair)
