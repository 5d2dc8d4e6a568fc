"""Files of a script, their CUDA idioms, and the change of those that are safe to change."""

import ast
import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hpu_doctor.migrate.finder import Edit, Usage, find, imported_names

__all__ = ["SourceFile", "SourceFileError", "find_files", "fix", "read", "to_json", "write"]


_CONFIGURATIONS: Final = frozenset({".json", ".toml", ".yaml", ".yml"})


class SourceFileError(ValueError):
    """A file cannot be read, or is no Python of this version; the message says which and why."""


@dataclass(frozen=True)
class SourceFile:
    """Python file with its CUDA idioms.

    Attributes:
        path: Its path.
        text: Its text, with the line ends of the file.
        encoding: Encoding of the file.
        usages: The idioms, in order.
    """

    path: Path
    text: str
    encoding: str
    usages: tuple[Usage, ...]


def read(path: Path) -> SourceFile:
    """Return a file with its idioms.

    Raises:
        SourceFileError: It cannot be read or parsed.
    """
    if path.suffix in _CONFIGURATIONS:
        raise SourceFileError(
            f"{path}: `migrate` reads Python only: in a configuration write `accelerator: hpu`, and `precision: "
            "bf16-mixed` instead of 16"
        )
    try:
        data = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        tree = ast.parse(text)
    except OSError as error:
        raise SourceFileError(f"{path}: {error.strerror}") from error
    except (SyntaxError, UnicodeError, ValueError, RecursionError) as error:
        raise SourceFileError(f"{path}: not a Python file of this version: {error}") from error
    return SourceFile(path, text, encoding, tuple(find(tree)))


def find_files(paths: Sequence[Path]) -> list[SourceFile]:
    """Return the files at paths.

    Args:
        paths: Python files, or folders, of which each file `*.py` is taken.

    Raises:
        SourceFileError: A file cannot be read or parsed.
    """
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    return [read(file) for file in dict.fromkeys(files)]


def fix(source: SourceFile) -> SourceFile:
    """Return a file with the edits of its usages, and the imports that they need; nothing is written."""
    while any(usage.edit is not None for usage in source.usages):
        text = _edit_once(source)
        source = SourceFile(source.path, text, source.encoding, tuple(find(ast.parse(text))))
    return source


def write(source: SourceFile) -> None:
    """Write a file that `fix` has changed, in its encoding.

    Raises:
        OSError: It cannot be written.
    """
    source.path.write_bytes(source.text.encode(source.encoding))


def to_json(files: Sequence[SourceFile], fixed: int) -> dict[str, Any]:
    """Return the usages, of which `fixed` others have been changed, as plain data that `json` can serialize."""
    return {
        "schema_version": 1,
        "files": [str(source.path) for source in files],
        "fixed": fixed,
        "findings": [
            {
                "file": str(source.path),
                "line": usage.line,
                "column": usage.column,
                "found": usage.found,
                "advice": usage.hint,
                "replacement": usage.edit.text if usage.edit is not None else None,
            }
            for source in files
            for usage in source.usages
        ],
    }


def _edit_once(source: SourceFile) -> str:
    """Return the text with all edits but those that are within others, for which the text is parsed again."""
    tree = ast.parse(source.text)
    edits = [usage.edit for usage in source.usages if usage.edit is not None]
    lines = source.text.encode().splitlines(keepends=True)
    # From the end, so that earlier positions stay valid.
    last: tuple[int, int] | None = None
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        if last is None or edit.end <= last:
            _replace(lines, edit)
            last = edit.start
    missing = sorted({edit.needs for edit in edits} - {"", *imported_names(tree)})
    place = _import_place(tree)
    end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    lines[place:place] = [f"import {name}".encode() + end for name in missing]
    return b"".join(lines).decode()


def _replace(lines: list[bytes], edit: Edit) -> None:
    (first, start), (last, end) = edit.start, edit.end
    lines[first - 1 : last] = [lines[first - 1][:start] + edit.text.encode() + lines[last - 1][end:]]


def _import_place(tree: ast.Module) -> int:
    """Return the number of lines before which imports can be added: those of the last import at the start."""
    place = 0
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and not is_docstring:
            break
        place = node.end_lineno or node.lineno
    return place
