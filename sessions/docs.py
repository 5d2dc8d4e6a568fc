"""The documentation, and what its pages say can be typed."""

from __future__ import annotations

import nox

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
    """Run the code blocks of docs/ and the READMEs word for word on simulated cards; `-- --only TEXT` chooses pages."""
    # What the pages call beside Python: pytest, torchrun, towncrier.
    groups = (*group("reference"), *group("test"), *group("demo"), *group("release"))
    install(session, *PACKAGES, *groups, *(requirement for p in PACKAGES.values() for requirement in own_group(p)))
    session.run("python", "reference/walk.py", *session.posargs, env=own_machine(session))
