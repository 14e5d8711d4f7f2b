"""Pages about a fitted model and its monitor: HTML files that need no other file."""

from __future__ import annotations

from localma.report.monitor_page import render_monitor, write_monitor
from localma.report.page import render, write

__all__ = ["render", "render_monitor", "write", "write_monitor"]
