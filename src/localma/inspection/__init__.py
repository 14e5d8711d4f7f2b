"""Looking inside a fitted model: tables first, then pictures."""

from __future__ import annotations

from localma.inspection.path import LocalityPathDisplay

__all__ = ["LocalityPathDisplay"]
