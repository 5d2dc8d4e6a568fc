"""How Sphinx builds this documentation; `nox -s docs` runs it.

It needs no network: no inventory is fetched, and names that are documented elsewhere are listed below.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

# Wherever this is built, classes are documented as they are where nothing has been put in the place of Lightning's.
os.environ["HPU_CORE_AUTOLOAD"] = "0"

project = "PyTorch Lightning on Intel Gaudi"
# No year and no date: the pages are the same whenever they are built.
project_copyright = "the maintainers, Apache-2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Sources of pages are in the repository.
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist"]
# Headings down to this level can be linked to, by the names that hosts of repositories give them.
myst_heading_anchors = 3

# Docstrings say `name`, as they are read in an editor, too.
default_role = "literal"
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_maximum_signature_line_length = 88

# What other projects document. Their inventories would have to be fetched.
_ELSEWHERE: Final = (
    "collections",
    "contextlib",
    "datetime",
    "lightning",
    "lightning_fabric",
    "os",
    "packaging",
    "pathlib",
    "pytorch_lightning",
    "torch",
    "types",
    "typing",
)
# The same by the bare names that stand in docstrings, and in annotations of Lightning's that are inherited as text.
_ELSEWHERE_BARE: Final = (
    "Accelerator",
    "CheckpointIO",
    "ClusterEnvironment",
    "DistributedDataParallel",
    "LightningModule",
    "MisconfigurationException",
    "Module",
    "Optimizable",
    "Optimizer",
    "Path",
    "Precision",
    "SIGTERMException",
    "STEP_OUTPUT",
    "Tensor",
    "Trainer",
    "_AcceleratorRegistry",
    "_DEVICE",
    "_PATH",
    "_StrategyRegistry",
)
nitpick_ignore_regex = [
    ("py:.*", rf"({'|'.join(_ELSEWHERE)})(\..*)?"),
    ("py:.*", "|".join(_ELSEWHERE_BARE)),
    # Private classes that public ones derive from or return: viewcode shows them.
    ("py:.*", r"hpu_\w+(\.\w+)*\._\w+(\..*)?"),
    # Type variables are no objects of the documentation.
    ("py:.*", r"(hpu_core\.(collectives|parallel)\.)?T"),
]

# Packages all of whose public names have an entry; those of lightning_habana are other packages' names.
_DOCUMENTED: Final = (
    "hpu_compat",
    "hpu_core",
    "hpu_ddp",
    "hpu_deepspeed",
    "hpu_precision",
    "hpu_profiler",
    "hpu_sim",
)


def _undocumented(_: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that no page documents; with -W the build fails."""
    from sphinx.util import logging

    objects = env.domains.python_domain.objects
    for package in _DOCUMENTED:
        for name in importlib.import_module(package).__all__:
            if name != "__version__" and f"{package}.{name}" not in objects:
                logging.getLogger(__name__).warning("%s.%s is public, and no page under api/ has it", package, name)


def setup(app: Sphinx) -> None:
    """Have the check run.

    Args:
        app: The build.
    """
    app.connect("env-check-consistency", _undocumented)
