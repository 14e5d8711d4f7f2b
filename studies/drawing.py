"""Line plots over a key of the cells, with standard errors; readable in black and white."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from localma._optional import optional
from studies.findings import Array, NotRunError, Results, standard_error
from studies.pairs import differences

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "x", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)))
"""Used in turn. Lengths without a common divisor give many lines different styles."""


def subplots(rows: int, columns: int, **options: Any) -> tuple[Any, Any]:
    """Create a figure of panels, each 4.2 by 3.4 inches."""
    pyplot = optional("matplotlib.pyplot", extra="plot")
    size = (4.2 * columns, 3.4 * rows)
    return pyplot.subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **options
    )


def draw_lines(
    axes: Any,
    results: Results,
    methods: Mapping[str, str],
    metric: str,
    over: str,
    *,
    above: float = 0.0,
    relative_to: str | None = None,
    first_style: int = 0,
    **keys: Any,
) -> None:
    """Draw the mean of a metric along a key, a line per method that has been run, with a band.

    methods : method -> label; above : a number that is subtracted from every value; relative_to : a
    method, to which paired differences are drawn instead, in per cent of its mean; first_style :
    style of the first line, if the panel already has lines; keys : the other keys of the cell.
    """
    for k, (method, label) in enumerate(methods.items(), first_style):
        colour, marker, dash = (style[k % len(style)] for style in (COLOURS, MARKERS, DASHES))
        try:
            at, mean, error = _line(results, method, metric, over, above, relative_to, keys)
        except NotRunError:
            continue
        axes.plot(at, mean, color=colour, marker=marker, linestyle=dash, ms=4, label=label)
        axes.fill_between(at, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def _line(
    results: Results,
    method: str,
    metric: str,
    over: str,
    above: float,
    relative_to: str | None,
    keys: Mapping[str, Any],
) -> tuple[list[Any], Array, Array]:
    """Positions, means and standard errors, which are zero for a single replicate."""
    if relative_to is None:
        at = list(results.series(method, metric, over, **keys))
        values = [results.values(method, metric, **{over: x}, **keys) - above for x in at]
        mean = np.array([v.mean() for v in values])
        return at, mean, np.nan_to_num([standard_error(v) for v in values])
    found = differences(results, metric, method, relative_to, over, **keys)
    risk = np.array([one.risk for one in found.values()]) / 100.0
    mean = np.array([one.mean for one in found.values()]) / risk
    return list(found), mean, np.nan_to_num([one.error for one in found.values()]) / risk


def draw_panels(
    results: Results,
    panels: Mapping[str, Mapping[str, Any]],
    methods: Mapping[str, str],
    metric: str,
    over: str,
    *,
    side_by_side: bool = False,
    relative_to: str | None = None,
    **axes_options: Any,
) -> Any:
    """Draw lines in panels, two per row, with one legend.

    panels : title -> keys of its cells; methods : method -> label; side_by_side : whether two
    panels share their scale; relative_to : see `draw_lines`; axes_options : labels and scales of
    every panel.
    """
    figure, grid = subplots(-(-len(panels) // 2), 2, sharey=side_by_side)
    for axes, (title, keys) in zip(grid.flat, panels.items(), strict=True):
        draw_lines(axes, results, methods, metric, over, relative_to=relative_to, **keys)
        if relative_to is not None:
            axes.axhline(0.0, color="0.6", linewidth=1, zorder=0)
        axes.set(title=title, **axes_options)
        if side_by_side:
            axes.label_outer()
    handles, labels = grid.flat[0].get_legend_handles_labels()
    if handles:
        place, columns = ("right center", 1) if side_by_side else ("lower center", 4)
        figure.legend(handles, labels, loc=f"outside {place}", ncols=columns, frameon=False)
    return figure


def save(figure: Any, folder: Path, name: str) -> list[Path]:
    """Write a figure to a file and close it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    optional("matplotlib.pyplot", extra="plot").close(figure)
    return [path]
