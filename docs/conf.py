"""Settings of the site that `make docs` builds, and the hook that writes its generated pages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dsforge import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "dsforge"
version = release = __version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"dsforge {__version__}"
html_copy_source = False
html_show_copyright = False
exclude_patterns = ["_build"]
myst_heading_anchors = 3


def _write_pages(_: Sphinx) -> None:
    from pages import pages

    folder = HERE / "reference" / "generated"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, "utf-8")


def setup(app: Sphinx) -> None:
    """Write the generated pages before sphinx looks for sources."""
    app.connect("builder-inited", _write_pages)
