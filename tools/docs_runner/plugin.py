"""pytest plugin: each code block of a document is a test, and the blocks of a document run in order.

    python -m pytest -p docs_runner.plugin README.md docs/start/no-card.md

`nox -s docs_blocks` passes the documents of this repository, `nox -s reference` those of another folder. A document
runs in a copy of the repository, so a block finds what the blocks before it wrote. Only data and epochs are reduced.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sybil import Sybil

from docs_runner import blocks
from docs_runner.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sybil import Document, Example, Region


def _parse(document: Document) -> Iterator[Region]:
    for region in blocks.parse(document):
        region.evaluator = _evaluate
        yield region


def _evaluate(example: Example) -> None:
    block: blocks.Block = example.parsed
    if block.kind == "skip":
        pytest.skip(block.argument)
    workspace: Workspace = example.namespace.get("workspace") or Workspace()
    example.namespace["workspace"] = workspace
    if block.kind == "file":
        workspace.write(block)
    elif block.kind == "shell":
        workspace.run_shell(block)
    elif block.kind == "python":
        parsed = (region.parsed for _, region in example.document.regions)
        workspace.run_python(block, [other.text for other in parsed if other.kind in {"shell", "skip"}])
    elif not blocks.matches_output(block, workspace.output):
        pytest.fail(f"{block.text}\nis not what was printed:\n{workspace.output}", pytrace=False)


def _close(namespace: dict[str, Any]) -> None:
    if "workspace" in namespace:
        namespace["workspace"].close()


def pytest_configure() -> None:
    """Turn SIGTERM into an exception, so that the processes of a running block are killed too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


pytest_collect_file = Sybil([_parse], path="/", patterns=["*.md", "*.rst", "*.txt"], teardown=_close).pytest()
