"""One self-contained HTML page about finished runs: a single file that loads nothing from the network."""

from edgefl.report.page.sections import page, write_page

__all__ = ["page", "write_page"]
