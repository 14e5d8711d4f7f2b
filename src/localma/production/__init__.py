"""Answers in production: failing candidates, deadlines, budgets and routing."""

from __future__ import annotations

from localma.production.answer import Answer, Failure
from localma.production.breaker import Breaker

__all__ = ["Answer", "Breaker", "Failure"]
