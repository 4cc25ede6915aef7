"""Sphinx's settings. `nox -s docs` builds the site in build/docs, with warnings as errors."""

import importlib.util
import sys
from pathlib import Path

import popsr

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "popsr"
author = "The popsr developers"
copyright = author
version = release = popsr.__version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "docstrings",
    "help_pages",
    "sphinx_copybutton",
    "sphinx_design",
    "reference",
    "navigation",
    "ranking",
    "directives",
]
# `popsr ops --markdown` prints ops.md with its table: that is a page of the reference.
exclude_patterns = ["ops.md", "_ext"]

# A name of an annotation, as Module, may be described under several paths.
suppress_warnings = ["ref.python"]

nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
# Tutorials of steps of other frameworks are shown without output where the framework is not installed.
nb_execution_excludepatterns = [
    pattern
    for package, pattern in (
        ("jax", "tutorials/prove_flax.md"),
        ("jax", "tutorials/prove_equinox.md"),
        ("torch", "tutorials/prove_tensor_parallel.md"),
        ("torch", "tutorials/prove_fsdp.md"),
    )
    if importlib.util.find_spec(package) is None
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_attr_annotations = True
napoleon_custom_sections = [
    ("Facts", "params_style"),
    "Source",
]  # see python/popsr/ops/_facts.py
add_module_names = False
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"popsr {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_ext/scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5f8a", "color-brand-content": "#0b5f8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ea", "color-brand-content": "#7cc4ea"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
