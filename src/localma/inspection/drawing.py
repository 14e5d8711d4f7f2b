"""How pictures look: colours that everybody can tell apart, and names that stay names.

Colours are those of Okabe and Ito, but for their yellow, which does not show on white and gives way
to a dark wine red; line styles, markers and hatches go with them, so that pictures can be read in
black and white.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

from localma._optional import optional
from localma.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Style = TypeVar("Style")

OTHERS = "#999999"
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#882255",
    OTHERS,
)
LINES: tuple[Any, ...] = (
    "-",
    "--",
    ":",
    "-.",
    (0, (6, 1)),
    (0, (3, 1, 1, 1)),
    (0, (1, 1)),
    (0, (6, 3, 1, 3, 1, 3)),
    (0, (2, 2)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")
HATCHES = ("", "//", "\\\\", "xx", "..", "++", "oo", "--", "||")

KIND_COLOURS = {"local": "#0072B2", "global": "#D55E00", "equal": "#009E73", "control": "#CC79A7"}
KIND_MARKERS = {"local": "o", "global": "s", "equal": "^", "control": "D"}


def nothing_to_draw() -> InvalidInputError:
    """Build the error for a picture of weights that do not depend on the input."""
    return InvalidInputError(
        "There is nothing to draw: the weights are the same for every row, or the gate sees no "
        "feature. predict_weights gives the weights."
    )


def name_text(name: str, most: int = 28) -> str:
    """A name as matplotlib shall draw it: cut where it is long, and never read as mathematics.

    >>> name_text("$x_1$")
    '\\\\$x_1\\\\$'
    """
    short = name if len(name) <= most else f"{name[: most - 1]}…"
    # Legends leave out what begins with an underscore; a space of no width does not show.
    guarded = f"\u200b{short}" if short.startswith("_") else short
    return guarded.replace("\n", " ").replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """A sentence in lines, never read as mathematics."""
    return "\n".join(wrap(text, width)).replace("$", r"\$")


def two_errors(error: float | None) -> float:
    """Length of a bar of two standard errors; NaN, which draws none, where the error is unknown.

    >>> two_errors(0.5), two_errors(None)
    (1.0, nan)
    """
    return float("nan") if error is None else 2 * error


def new_axes(width: float, height: float) -> Axes:
    """Axes on a figure of their own, which arranges itself."""
    pyplot = optional("matplotlib.pyplot", extra="plot")
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def whole_figure(ax: Axes) -> Figure:
    """The figure that axes belong to, without the subfigures between."""
    figure: Any = ax.figure
    return figure.figure


def say_above(ax: Axes, text: str, *, own: bool) -> None:
    """A sentence above a picture: over the whole figure if it is our own, else over the axes."""
    if own:
        figure = whole_figure(ax)
        figure.suptitle(wrapped(text, int(figure.get_figwidth() * 13)), fontsize="small")
    else:
        ax.set_title(wrapped(text, 70), fontsize="small")


def place(item: int, styles: Sequence[Style]) -> Style:
    """Style of the n-th candidate."""
    return styles[item % len(styles)]


def draw_legend(ax: Axes, is_new: bool) -> None:
    """Put the legend below a figure of our own, or else inside the axes."""
    handles, labels = ax.get_legend_handles_labels()
    if is_new:
        legend_below(whole_figure(ax), handles, labels)
    else:
        ax.legend(handles, labels, fontsize="small")


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """One legend for a whole figure, below it, in as many columns as fit."""
    longest = max(len(label) for label in labels)
    room = int(figure.get_figwidth() * 12)
    columns = max(1, min(len(labels), room // (longest + 7)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
