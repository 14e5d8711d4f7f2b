"""A page about a fitted model: one HTML file, made from the summary of `localma.inspection`."""

from __future__ import annotations

from localma.report.page import render, write

__all__ = ["render", "write"]
