"""Configuration of Sphinx; `nox -s docs` builds the documentation.

The build needs no network: names that other projects document are listed below and get no link. With
DOCS_INTERSPHINX=1, for the published site, they link to the documentation of Python, torch and Lightning.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

# The pages are the same on any machine: hpu-core does not replace Lightning's connectors during the build.
os.environ["HPU_CORE_AUTOLOAD"] = "0"

project = "PyTorch Lightning on Intel Gaudi"
# No year and no date, so the pages do not depend on the time of the build.
project_copyright = "the maintainers, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinxcontrib.programoutput",
]
exclude_patterns = ["_build"]
# Sphinx warns about an inventory that it cannot fetch, so only a build with a network asks for them.
if os.environ.get("DOCS_INTERSPHINX") == "1":
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "lightning": ("https://lightning.ai/docs/pytorch/stable", None),
    "python": ("https://docs.python.org/3", None),
    "torch": ("https://docs.pytorch.org/docs/stable", None),
}
html_theme = "furo"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
# The sources of the pages are in the repository.
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist"]
# Links can point to headings down to this level.
myst_heading_anchors = 3

# Docstrings mark names as `name`, which editors show as well.
default_role = "literal"
napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
# A default is shown as the source has it; the value of a table of functions is no text.
autodoc_preserve_defaults = True
autodoc_default_options = {"show-inheritance": True}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_maximum_signature_line_length = 88

# Packages that other projects document.
_EXTERNAL: Final = (
    "collections",
    "contextlib",
    "datetime",
    "lightning",
    "lightning_fabric",
    "np",
    "numpy",
    "os",
    "packaging",
    "pathlib",
    "pickle",
    "pytorch_lightning",
    "ray",
    "torch",
    "types",
    "typing",
)
# Names without a module, in docstrings and in annotations that are inherited from Lightning as text.
_EXTERNAL_NAMES: Final = (
    "Accelerator",
    "ArrayLike",
    "CPUOffload",
    "CheckpointIO",
    "ClusterEnvironment",
    "Dataset",
    "DeviceMesh",
    "DistributedDataParallel",
    "EventList",
    "LightningModule",
    "MisconfigurationException",
    "MixedPrecision",
    "Module",
    "NDArray",
    "Optimizable",
    "Optimizer",
    "Path",
    "Precision",
    "ProfilerAction",
    "ProfilerActivity",
    "SIGTERMException",
    "Sampler",
    "ScalingConfig",
    "STEP_OUTPUT",
    "Tensor",
    "TorchConfig",
    "Trainer",
    "_AcceleratorRegistry",
    "_DEVICE",
    "_PATH",
    "_StrategyRegistry",
    r"nn\.Module",
)
nitpick_ignore_regex = [
    ("py:.*", r"_frozen_importlib\.ModuleSpec"),
    ("py:.*", rf"({'|'.join(_EXTERNAL)})(\..*)?"),
    ("py:.*", "|".join(_EXTERNAL_NAMES)),
    # Private classes that public ones derive from or return; viewcode shows them.
    ("py:.*", r"hpu_\w+(\.\w+)*\._\w+(\..*)?"),
    # What Fabric's `precision` selects, and no program names.
    ("py:class", r"hpu_deepspeed\.precision\.FabricHPUDeepSpeedPrecision"),
    # Type variables have no page.
    ("py:.*", r"(hpu_core\.(collectives|distributed\.strategy)\.)?T|(hpu_bucketing\.loader\.)?T_co"),
    # Aliases of types have no page either.
    ("py:.*", r"Boundaries|Field|Grouping|Mode|Regions|Stage"),
]

# Packages whose public names must all have an entry; the names of lightning_habana belong to other packages.
_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = sorted(path.parent.name for path in _ROOT.glob("packages/*/src/hpu_*/__init__.py"))


def _check_public_names(_: Sphinx, env: BuildEnvironment) -> None:
    """Warn about public names without an entry; with --fail-on-warning the build fails."""
    from sphinx.util import logging

    objects = env.domains.python_domain.objects
    for package in _PACKAGES:
        for name in importlib.import_module(package).__all__:
            if name != "__version__" and f"{package}.{name}" not in objects:
                logging.getLogger(__name__).warning("%s.%s is public and has no entry under api/", package, name)


def setup(app: Sphinx) -> None:
    """Register the check of public names."""
    app.connect("env-check-consistency", _check_public_names)
