"""Sessions that build the documentation and run its code blocks."""

from __future__ import annotations

import nox
from docs_runner import documents

from sessions.environments import install, own_machine
from sessions.packages import PACKAGES, group, own_group


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build docs/ with warnings as errors, and check the links of READMEs; the pages lie in docs/_build/html."""
    install(session, *PACKAGES, *group("docs"))
    session.run("python", "scripts/links.py")
    # From nothing each time: pages that were not read again would warn of nothing.
    options = ("--fail-on-warning", "--nitpicky", "--keep-going", "--fresh-env", "--write-all")
    # What Sphinx keeps between builds is no part of the site.
    places = ("--doctree-dir", "docs/_build/doctrees", "docs", "docs/_build/html")
    session.run("sphinx-build", *options, *session.posargs, *places, env={"SOURCE_DATE_EPOCH": "0"})


@nox.session(default=False)
def docs_blocks(session: nox.Session) -> None:
    """Run the code blocks of docs/ and the READMEs on simulated cards; `-- docs/index.md` selects documents."""
    run_blocks(session, *(session.posargs or sorted(str(path) for path in documents())))


@nox.session(default=False)
def reference(session: nox.Session) -> None:
    """Run the code blocks of a folder of other people's documents on simulated cards: `-- FOLDER`."""
    if not session.posargs:
        session.skip("needs a folder with documents: nox -s reference -- FOLDER")
    run_blocks(session, *session.posargs)


def run_blocks(session: nox.Session, *paths: str) -> None:
    """Run the code blocks of documents, or of all documents in folders."""
    # Besides Python, the pages call pytest, torchrun and towncrier.
    groups = (*group("docs_runner"), *group("test"), *group("demo"), *group("release"))
    install(session, *PACKAGES, *groups, *(requirement for p in PACKAGES.values() for requirement in own_group(p)))
    # A block has 10 minutes (docs_runner.workspace.TIMEOUT), and the copy of the repository is made in its time.
    options = ("-c", "pyproject.toml", "-p", "docs_runner.plugin", "--verbose", "--timeout=900")
    session.run("python", "-m", "pytest", *options, *paths, env=own_machine(session))
