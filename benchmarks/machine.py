"""The machine and the versions of a result, without the name of the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import joblib

PACKAGES = ("localma", "numpy", "scipy", "scikit-learn", "numba", "torch", "jax")


def describe() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": int(joblib.cpu_count()),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> str:
    """Model of the processor, from a file that only Linux has."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
