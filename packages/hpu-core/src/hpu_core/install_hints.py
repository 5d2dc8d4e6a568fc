"""Commands that install the other distributions of this repository, for error messages."""

import importlib.metadata
import json
import shlex
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

PACKAGES: Final = frozenset(
    {
        "hpu_bucketing",
        "hpu_compat",
        "hpu_compile",
        "hpu_core",
        "hpu_data",
        "hpu_ddp",
        "hpu_deepspeed",
        "hpu_doctor",
        "hpu_export",
        "hpu_fsdp",
        "hpu_kernels",
        "hpu_launch",
        "hpu_lightning",
        "hpu_precision",
        "hpu_profiler",
        "hpu_ray",
        "hpu_sim",
        "lightning_habana",
    }
)
"""Import names of the packages of this repository."""


def install_command(distribution: str) -> str:
    """Return the command that installs a distribution: from the checkout of this one, otherwise from the index.

    Args:
        distribution: Name of a distribution, such as "hpu-ddp".

    >>> install_command("hpu-unheard-of")
    'pip install hpu-unheard-of'
    """
    checkout = _checkout()
    source = None if checkout is None else checkout / distribution
    if source is None or not (source / "pyproject.toml").is_file():
        return f"pip install {distribution}"
    return f"pip install {shlex.quote(str(source))}"


def _checkout() -> Path | None:
    """Return the folder with the sources of this distribution and its neighbours; None if it is from an index."""
    try:
        text = importlib.metadata.distribution("hpu-core").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        # A source tree on the path.
        return Path(__file__).resolve().parents[3]
    url = urlsplit(json.loads(text)["url"]) if text else None
    return Path(url2pathname(url.path)).parent if url is not None and url.scheme == "file" else None
