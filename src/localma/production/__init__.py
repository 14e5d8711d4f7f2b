"""Answers in production: failing candidates, deadlines, budgets, routing and monitors."""

from __future__ import annotations

from localma.production.answer import Answer, Failure
from localma.production.breaker import Breaker
from localma.production.monitor import Monitor
from localma.production.monitor_report import MonitorReport

__all__ = ["Answer", "Breaker", "Failure", "Monitor", "MonitorReport"]
