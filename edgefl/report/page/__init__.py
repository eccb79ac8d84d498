"""One self-contained HTML page about finished runs: everything in one file, nothing fetched from anywhere."""

from edgefl.report.page.write import page, write_page

__all__ = ["page", "write_page"]
