"""Sphinx's configuration; ``build.py`` gathers the pages and starts it."""

from pydoc import ErrorDuringImport, locate
from typing import Any

from docutils.nodes import Element
from sphinx.application import Sphinx

from edgefl.version import __version__ as release

project = "edgefl"
version = release
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
highlight_language = "none"  # of blocks that name no language
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = True  # a name that leads nowhere is a warning, and a warning fails the build

html_theme = "furo"
html_title = "edgefl"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_favicon = "static/favicon.svg"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3949ab", "color-brand-content": "#3949ab"},
    "dark_css_variables": {"color-brand-primary": "#9fa8da", "color-brand-content": "#9fa8da"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"

myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
suppress_warnings = ["myst.header"]  # a changelog begins its entries at the third level

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "exclude-members": "model_config,model_post_init,__init__,__new__"}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # the attributes of a dataclass are members already


def _leads_nowhere(name: str) -> bool:
    """Whether it names something that edgefl does not have."""
    try:
        return name.startswith("edgefl.") and locate(name) is None
    except ErrorDuringImport:
        return True


def _without_page(_app: Sphinx, _env: Any, node: Element, shown: Element) -> Element | None:
    """Show names without a link if no page describes them: names of other packages, less public names of edgefl."""
    return shown if node.get("refdomain") == "py" and not _leads_nowhere(node["reftarget"]) else None


def setup(app: Sphinx) -> None:
    """Add the function above to Sphinx."""
    app.connect("missing-reference", _without_page)
