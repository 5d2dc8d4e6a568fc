"""Search for CUDA idioms in the syntax tree of one file."""

import ast
import re
from dataclasses import dataclass
from typing import Final

from hpu_doctor.migrate.rules import AUTOCAST, MODULES, NAMES, SCALER, VARIABLES, Rule

_NCCL: Final = re.compile(r"NCCL_[A-Z0-9_]+")
_CUDA: Final = re.compile(r"cuda(:\d+)?")
# Functions whose text "cuda" is a device, by the last part of their name, and keywords that have one.
_DEVICE_CALLS: Final = frozenset({"device", "to", "autocast", "GradScaler", "set_default_device", "get_device_module"})
_DEVICE_KEYWORDS: Final = frozenset({"device", "device_type", "map_location"})
_NO_INDEX: Final = '"hpu", without an index: a process has one card'
_ACCELERATORS: Final = frozenset({"gpu", "cuda"})
_KERNELS: Final = {
    "foreach": "leave it out: torch's functions with it refuse hpu",
    "fused": "leave it out; the callback `hpu_kernels.HPUKernels` takes the card's fused optimizer",
}
_HALF: Final = frozenset({"16", "16-mixed", "16-true"})
_BACKENDS: Final = frozenset({"backend", "process_group_backend"})


@dataclass(frozen=True, slots=True)
class Edit:
    """Change of a part of a file.

    Attributes:
        start: Line from 1 and byte from 0 of its first character.
        end: The same after its last one.
        text: What replaces it.
        needs: Module that the text uses, imported by this name; "" for none.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    text: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """One use of CUDA in a file.

    Attributes:
        line: Its line, from 1.
        column: Its first character, from 1.
        found: The idiom in a few words.
        hint: What to write instead.
        edit: Change that keeps the meaning; None if that depends on the program.
    """

    line: int
    column: int
    found: str
    hint: str
    edit: Edit | None = None


def find(tree: ast.Module) -> list[Usage]:
    """Return the idioms in a file, in order."""
    finder = _Finder(tree)
    finder.visit(tree)
    return sorted(finder.usages, key=lambda usage: (usage.line, usage.column))


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the full names of what a file imports, by its own names for them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import torch.nn` binds "torch".
                package = alias.name.partition(".")[0]
                names[alias.asname or package] = alias.name if alias.asname else package
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


class _Finder(ast.NodeVisitor):
    def __init__(self, tree: ast.Module) -> None:
        self.usages: list[Usage] = []
        self._names = imported_names(tree)
        # Nodes that a usage includes already, and those that are a statement by themselves.
        self._done: set[int] = set()
        self._statements: set[int] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            self._check_module(node, node.module)

    def visit_Expr(self, node: ast.Expr) -> None:
        self._statements.add(id(node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._full_name(node.func)
        last = getattr(node.func, "attr", "") or name.rpartition(".")[2] or getattr(node.func, "id", "")
        rule = rule_of(name)
        if rule is not None:
            self._check_call(node, name, rule)
        elif last == "cuda" and isinstance(node.func, ast.Attribute):
            self._check_cuda_method(node, node.func)
        elif (
            last == "half" and isinstance(node.func, ast.Attribute) and not node.args and not name.startswith("torch.")
        ):
            self._add(node, ".half()", 'Gaudi computes in bfloat16: `.bfloat16()`, or `precision="bf16-true"`')
        elif name == "torch.compile":
            self._check_compile(node)
        elif last == "DistributedDataParallel":
            self._check_device_ids(node)
        if last == "device" and len(node.args) == 2 and _is_cuda(node.args[0]):  # noqa: PLR2004 - and an index.
            self._done.add(id(node.args[0]))
            edit = Edit((node.args[0].lineno, node.args[0].col_offset), _end(node.args[1]), '"hpu"')
            self._add(node, ast.unparse(node), _NO_INDEX, edit)
        if last in _DEVICE_CALLS and node.args:
            self._check_device(node.args[0])
        for keyword in node.keywords:
            self._check_keyword(keyword, last)
        if last == "init_process_group" and node.args:
            self._check_backend(node.args[0])
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "accelerator":
                self._check_accelerator(value)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        test = self._full_name(node.test.func) if isinstance(node.test, ast.Call) else ""
        if test == "torch.cuda.is_available":
            self._check_device(node.body)
            if isinstance(node.body, ast.Constant) and node.body.value in _ACCELERATORS:
                self._done.add(id(node.body))
                self._add(node.body, repr(node.body.value), '"hpu"', _edit(node.body, '"hpu"'))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._full_name(node)
        rule = rule_of(name)
        if rule is not None and id(node) not in self._done:
            self._mark_done(node)
            edit = _edit(node, rule.name, rule.needs) if rule.name and name in NAMES else None
            self._add(node, name, rule.hint, edit)
        elif node.attr == "is_cuda":
            self._add(node, ".is_cuda", '`tensor.device.type == "hpu"`')
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        rule = rule_of(self._full_name(node))
        if rule is not None and id(node) not in self._done:
            self._add(node, self._full_name(node), rule.hint)

    def visit_Constant(self, node: ast.Constant) -> None:
        if id(node) in self._done or not isinstance(node.value, str):
            return
        if _CUDA.fullmatch(node.value):
            self._add(node, repr(node.value), _NO_INDEX)
        elif node.value == "nccl":
            self._add(node, "'nccl'", '"hccl"', _edit(node, '"hccl"'))
        elif node.value in VARIABLES:
            self._add(node, node.value, VARIABLES[node.value])
        elif _NCCL.fullmatch(node.value):
            self._add(node, node.value, "leave it out: HCCL does not read NCCL's variables")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if id(node) not in self._done and _is_device_text(node):
            self._add(node, 'f"cuda:..."', _NO_INDEX)

    def _check_call(self, node: ast.Call, name: str, rule: Rule) -> None:
        self._mark_done(node.func)
        has_arguments = bool(node.args or node.keywords)
        if rule.call is not None and not has_arguments and name in NAMES:
            text = "pass" if rule.call == "None" and id(node) in self._statements else rule.call
            edit: Edit | None = _edit(node, text, rule.needs)
        elif rule.call in {AUTOCAST, SCALER} or rule.name is None:
            edit = None
        else:
            # Its arguments may name a device.
            edit = None if node.args else _edit(node.func, rule.name, rule.needs)
        self._add(node, f"{name}()", rule.hint, edit)

    def _check_cuda_method(self, node: ast.Call, function: ast.Attribute) -> None:
        is_index = not node.args or (len(node.args) == 1 and isinstance(node.args[0], ast.Constant))
        keywords = [keyword for keyword in node.keywords if keyword.arg != "device"]
        edit = None
        if is_index and len(keywords) == len(node.keywords) and function.end_lineno is not None:
            parts = ['"hpu"', *(f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in keywords)]
            # From the attribute's name on, as what precedes it may have comments.
            start = (function.end_lineno, (function.end_col_offset or 0) - len("cuda"))
            edit = Edit(start, _end(node), f"to({', '.join(parts)})")
        self._done.update(id(argument) for argument in node.args)
        self._add(
            node,
            ".cuda()",
            '`.to("hpu")`; in a LightningModule leave it out, or use `self.device`, and make constants buffers',
            edit,
        )

    def _check_compile(self, node: ast.Call) -> None:
        backend = next((keyword.value for keyword in node.keywords if keyword.arg == "backend"), None)
        if backend is None or (isinstance(backend, ast.Constant) and backend.value == "inductor"):
            self._add(
                node,
                "torch.compile with inductor",
                "inductor has no code for hpu: the callback `hpu_compile.HPUCompile`, or `backend='hpu_backend'`",
            )

    def _check_device_ids(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            is_set = not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
            if keyword.arg in {"device_ids", "output_device"} and is_set:
                self._add(
                    keyword.value, f"{keyword.arg}=", "None: a process has one card", _edit(keyword.value, "None")
                )

    def _check_keyword(self, keyword: ast.keyword, function: str) -> None:
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg in _DEVICE_KEYWORDS:
            self._check_device(keyword.value)
        elif keyword.arg == "accelerator" or (keyword.arg == "default" and function == "add_argument"):
            self._check_accelerator(keyword.value)
        elif keyword.arg in _KERNELS and value is True:
            self._add(keyword.value, f"{keyword.arg}=True", _KERNELS[keyword.arg])
        elif keyword.arg in _BACKENDS:
            self._check_backend(keyword.value)
        elif keyword.arg == "pin_memory_device" and value == "cuda":
            self._done.add(id(keyword.value))
            self._add(keyword.value, "pin_memory_device='cuda'", '"hpu"', _edit(keyword.value, '"hpu"'))
        elif keyword.arg == "precision" and str(value) in _HALF and function in {"Trainer", "Fabric"}:
            self._add(keyword.value, f"precision={value!r}", '"bf16-mixed": bfloat16 needs no gradient scaling')
        elif keyword.arg == "sync_batchnorm" and value is True:
            self._add(keyword.value, "sync_batchnorm=True", NAMES["torch.nn.SyncBatchNorm"].hint)
        elif keyword.arg == "gpus":
            self._add(keyword.value, "gpus=", '`accelerator="auto", devices=N`')

    def _check_accelerator(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and node.value in _ACCELERATORS and id(node) not in self._done:
            self._done.add(id(node))
            self._add(node, f"accelerator={node.value!r}", '"auto", or "hpu"', _edit(node, '"auto"'))

    def _check_backend(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant) and node.value == "nccl":
            self._done.add(id(node))
            self._add(node, "'nccl'", '"hccl"', _edit(node, '"hccl"'))

    def _check_device(self, node: ast.expr) -> None:
        """Note a device, where its text is replaced without a doubt."""
        if isinstance(node, ast.IfExp):
            for branch in (node.body, node.orelse):
                self._check_device(branch)
            return
        if id(node) in self._done or not (_is_cuda(node) or _is_device_text(node)):
            return
        self._done.add(id(node))
        found = ast.unparse(node)
        self._add(node, found, _NO_INDEX, _edit(node, '"hpu"'))

    def _check_module(self, node: ast.stmt, module: str) -> None:
        for name, hint in MODULES.items():
            if module == name or module.startswith(f"{name}."):
                self._add(node, f"import {module}", hint)

    def _full_name(self, node: ast.expr) -> str:
        """Return the full name of an imported function or module, "" for other expressions."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            start = self._full_name(node.value)
            return f"{start}.{node.attr}" if start else ""
        return ""

    def _mark_done(self, node: ast.expr) -> None:
        """Mark a name and its parts, "torch.cuda" of "torch.cuda.synchronize"."""
        while isinstance(node, (ast.Attribute, ast.Name)):
            self._done.add(id(node))
            if isinstance(node, ast.Name):
                return
            node = node.value

    def _add(self, node: ast.expr | ast.stmt, found: str, hint: str, edit: Edit | None = None) -> None:
        self.usages.append(Usage(node.lineno, node.col_offset + 1, found, hint, edit))


def rule_of(name: str) -> Rule | None:
    """Return the rule of a name, or of the closest module that has it."""
    while name:
        if name in NAMES:
            return NAMES[name]
        name = name.rpartition(".")[0]
    return None


def _is_cuda(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CUDA.fullmatch(node.value))


def _is_device_text(node: ast.expr) -> bool:
    """Return whether it is an f-string that begins with "cuda:"."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else None
    return isinstance(first, ast.Constant) and str(first.value).startswith("cuda:")


def _edit(node: ast.expr, text: str, needs: str = "") -> Edit:
    return Edit((node.lineno, node.col_offset), _end(node), text, needs)


def _end(node: ast.expr) -> tuple[int, int]:
    # Nodes of a parsed file have both.
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
