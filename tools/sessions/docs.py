"""The documentation: its pages, links and code blocks."""

from __future__ import annotations

import nox

from docs_runner import documents
from sessions.environments import install, isolated_sim_env
from sessions.packages import PACKAGES, ROOT, group, test_requirements


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build docs/ into docs/_build/html with warnings as errors, and check the links of all Markdown files."""
    install(session, *PACKAGES, *group("docs"))
    session.run("md-dead-link-check")
    # From scratch, because Sphinx does not repeat the warnings of pages that it does not read again.
    options = ("--fail-on-warning", "--nitpicky", "--keep-going", "--fresh-env", "--write-all")
    folders = ("--doctree-dir", "docs/_build/doctrees", "docs", "docs/_build/html")
    session.run("sphinx-build", *options, *session.posargs, *folders, env={"SOURCE_DATE_EPOCH": "0"})


@nox.session(default=False)
def docs_blocks(session: nox.Session) -> None:
    """Run the code blocks of docs/ and the READMEs on simulated cards; `-- docs/index.md` selects documents."""
    run_blocks(session, *(session.posargs or map(str, documents())))


@nox.session(default=False)
def reference(session: nox.Session) -> None:
    """Run the code blocks of a folder of other people's documents on simulated cards: `-- FOLDER`."""
    if not session.posargs:
        session.skip("needs a folder with documents: nox -s reference -- FOLDER")
    run_blocks(session, *session.posargs)


def run_blocks(session: nox.Session, *paths: str) -> None:
    """Run the code blocks of documents, or of all documents in folders."""
    # Besides Python, the pages call pytest, torchrun and towncrier.
    groups = (requirement for name in ("docs_runner", "test", "demo", "release") for requirement in group(name))
    # Pages export models of transformers and adapters of PEFT.
    install(session, *PACKAGES, "hpu-export[hf,peft]", *groups, *test_requirements(*PACKAGES.values()))
    # docs_runner.workspace.TIMEOUT is shorter, and kills a block's processes.
    options = ("-c", "pyproject.toml", "-p", "docs_runner.plugin", "--verbose", "--timeout=900")
    session.run("pytest", *options, *paths, env=isolated_sim_env(session) | {"PYTHONPATH": str(ROOT / "tools")})
