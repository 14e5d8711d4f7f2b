"""Which means of a study moved between two versions of its results."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.findings import NotRunError, Results, standard_error
from studies.harness import Study
from studies.markdown import table

ERRORS = 2.0
"""A mean has moved if it changed by more than this many standard errors of the two means."""


def moved_means(study: Study, before: Results, after: Results) -> str:
    """Name the means that moved, in Markdown, after a sentence with their number."""
    shared, body = 0, []
    for method, metric, keys in after.entries():
        try:
            old, new = before.values(method, metric, **keys), after.values(method, metric, **keys)
        except NotRunError:
            continue
        shared += 1
        change = new.mean() - old.mean()
        errors = np.nan_to_num([standard_error(old), standard_error(new)])
        if abs(change) > ERRORS * np.hypot(*errors):
            where = ", ".join(_text(keys[key]) for key in sorted(keys))
            label = study.labels.get(method, method)
            body.append([label, metric, where, *(f"{v.mean():.4g}" for v in (old, new))])
    words = f"{len(body)} of {shared} means moved by more than {ERRORS:g} standard errors."
    return f"{words}\n\n{table(['method', 'metric', 'cell', 'before', 'after'], body)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,}"
