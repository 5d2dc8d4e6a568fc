"""Editable installation of packages into a folder each: ``python tools/editable_installs.py FOLDER SOURCE...``.

An environment that reads a package's folder as it reads its own site-packages has the package. pip takes a second for
each package of each environment.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path

from hatchling.build import build_editable


def install_editable(source: Path, folder: Path) -> None:
    """Install a package.

    Args:
        source: Folder of the package's pyproject.toml.
        folder: New folder, which receives what pip would put into site-packages.
    """
    folder.mkdir(parents=True)
    os.chdir(source)
    with zipfile.ZipFile(folder.parent / build_editable(str(folder.parent))) as wheel:
        wheel.extractall(folder)
    (metadata,) = folder.glob("*.dist-info")
    origin = {"url": source.as_uri(), "dir_info": {"editable": True}}
    (metadata / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")


if __name__ == "__main__":
    root, *sources = [Path(argument).resolve() for argument in sys.argv[1:]]
    for package in sources:
        install_editable(package, root / package.name)
