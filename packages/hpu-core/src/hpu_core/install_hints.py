"""Commands that install the other distributions of this repository, for error messages."""

import importlib.metadata
import importlib.util
import json
import shlex
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

# The libraries behind some packages, which are also the names of the extras that install them.
_LIBRARIES: Final = {"hpu-deepspeed": "deepspeed", "hpu-ray": "ray"}


def install_command(distribution: str) -> str:
    """Return the command that installs a distribution: from the checkout of this one, otherwise from the index.

    The library that the distribution is for comes with it, unless one is installed, such as Intel's fork of DeepSpeed.

    Args:
        distribution: Name of a distribution, such as "hpu-ddp".

    >>> install_command("hpu-unheard-of")
    'pip install hpu-unheard-of'
    """
    library = _LIBRARIES.get(distribution)
    extra = f"[{library}]" if library and importlib.util.find_spec(library) is None else ""
    checkout = _checkout()
    source = None if checkout is None else checkout / distribution
    if source is None or not (source / "pyproject.toml").is_file():
        return f"pip install {shlex.quote(distribution + extra)}"
    return f"pip install {shlex.quote(f'{source}{extra}')}"


def _checkout() -> Path | None:
    """Return the folder with the sources of this distribution and its neighbours; None if it is from an index."""
    try:
        text = importlib.metadata.distribution("hpu-core").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        # A source tree on the path.
        return Path(__file__).resolve().parents[3]
    url = urlsplit(json.loads(text)["url"]) if text else None
    return Path(url2pathname(url.path)).parent if url is not None and url.scheme == "file" else None
