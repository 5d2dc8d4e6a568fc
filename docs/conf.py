"""Configuration of Sphinx; `nox -s docs` builds the documentation.

The build needs no network: names that other projects document are listed below and get no link. With
DOCS_INTERSPHINX=1, for the published site, they link to the documentation of Python, torch and Lightning.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

# The generated parts of pages.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import site_pages

# The pages are the same on any machine: hpu-core does not replace Lightning's connectors during the build.
os.environ["HPU_CORE_AUTOLOAD"] = "0"

project = "PyTorch Lightning on Intel Gaudi"
# No year and no date, so the pages do not depend on the time of the build.
project_copyright = "the maintainers, Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
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
# No button beside what a program prints.
copybutton_selector = "div:not(.highlight-text):not(.highlight-default) > div.highlight > pre"

myst_enable_extensions = ["colon_fence", "deflist"]
# Links can point to headings down to this level.
myst_heading_anchors = 3

# Docstrings mark names as `name`, which editors show as well.
default_role = "literal"
napoleon_numpy_docstring = False
# Its tables link to the entries of the same page.
autosummary_generate = False
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
    "ShardingStrategy",
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
    ("py:.*", r"Boundaries|Decode|Field|Grouping|Last|Mode|Regions|Stage"),
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


def _complete_page(_: Sphinx, name: str, source: list[str]) -> None:
    """Fill the generated parts of a page."""
    source[0] = site_pages.fill(source[0])
    # One page links to the records, which the navigation leaves out.
    if name.startswith("records/") and name != "records/index":
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def _complete_included(_: Sphinx, path: Path, __: str, source: list[str]) -> None:
    """Add pages of the site to the links of the README."""
    if path.as_posix() == "../README.md":
        source[0] = site_pages.relink(source[0])


def _add_summary(_: Sphinx, what: str, name: str, *details: Any) -> None:
    """Add a table of the names that the page of a module documents to the docstring of the module."""
    module, options, lines = details
    if what != "module" or not options.get("members"):
        return
    # As autodoc: the names of `__all__`, or what the module itself defines.
    public = getattr(module, "__all__", None) or [
        key for key, value in vars(module).items() if getattr(value, "__module__", None) == name and value.__doc__
    ]
    chosen = options["members"] if isinstance(options["members"], list) else public
    excluded = options.get("exclude-members") or ()
    names = [
        key
        for key in public
        if key in chosen and key not in excluded and not key.startswith("_")
        # Aliases of types have no entry.
        if inspect.isclass(getattr(module, key)) or inspect.isroutine(getattr(module, key))
    ]
    if len(names) > 1:
        lines += ["", f".. currentmodule:: {name}", "", ".. autosummary::", "", *(f"   {key}" for key in names), ""]


def setup(app: Sphinx) -> None:
    """Register the generated parts and the check of public names."""
    app.connect("source-read", _complete_page)
    app.connect("include-read", _complete_included)
    app.connect("autodoc-process-docstring", _add_summary)
    app.connect("env-check-consistency", _check_public_names)
