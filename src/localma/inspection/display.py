"""The base class of the records that matplotlib can draw, and the look of plots.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish. Their yellow does
not show on white, so a dark wine red replaces it. Every colour has a line style, a marker and a
hatch, so that a plot can be read in black and white.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from localma._optional import optional
from localma._types import Float64, Json
from localma.errors import InvalidInputError
from localma.formatting import short
from localma.records import Record, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import LineStyleType

Item = TypeVar("Item")


class SeriesStyle(NamedTuple):
    """Look of one candidate in a plot; dark : its colour on a dark page."""

    colour: str
    dark: str
    line: LineStyleType
    marker: str
    hatch: str


SERIES = (
    SeriesStyle("#0072B2", "#3D9BE9", "-", "o", ""),
    SeriesStyle("#D55E00", "#F0813A", "--", "s", "//"),
    SeriesStyle("#009E73", "#22B88C", ":", "^", "\\\\"),
    SeriesStyle("#CC79A7", "#E596C2", "-.", "D", "xx"),
    SeriesStyle("#E69F00", "#F2B632", (0, (6, 1)), "v", ".."),
    SeriesStyle("#56B4E9", "#A3DDFF", (0, (3, 1, 1, 1)), "P", "++"),
    SeriesStyle("#000000", "#F4F4F4", (0, (1, 1)), "X", "oo"),
    SeriesStyle("#882255", "#C65D94", (0, (6, 3, 1, 3, 1, 3)), "*", "--"),
    SeriesStyle("#999999", "#9A9FA8", (0, (2, 2)), "h", "||"),
)
COLOURS = tuple(style.colour for style in SERIES)
DARK = tuple(style.dark for style in SERIES)
KIND_COLOURS = {"local": "#0072B2", "global": "#D55E00", "equal": "#009E73", "control": "#CC79A7"}
KIND_MARKERS = {"local": "o", "global": "s", "equal": "^", "control": "D"}


class Display(Record):
    """Base of the records that matplotlib can draw.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the last plot.
    figure_ : matplotlib.figure.Figure
        The figure of the last plot.

    Examples
    --------
    >>> from localma.inspection.effects import FeatureImportance, ImportanceDisplay
    >>> display = ImportanceDisplay([FeatureImportance("area", 0.4, 0.01, 1.0)])
    >>> display.columns()
    {'feature': ['area'], 'importance': [0.4], 'standard_error': [0.01], 'relative': [1.0]}
    >>> display.plot().figure_  # doctest: +SKIP
    """

    if TYPE_CHECKING:  # so that `get_type_hints` does not need matplotlib
        ax_: Axes
        figure_: Figure
        _owns_figure: bool

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the record with matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. By default a new figure is made.

        Returns
        -------
        Display
            The record itself, with the attributes `ax_` and `figure_`.
        """
        self._draw(ax)
        return self

    def _draw(self, ax: Axes | None) -> None:
        raise NotImplementedError

    def _start_plot(self, ax: Axes | None, width: float, height: float) -> Axes:
        """Store the axes, as scikit-learn's displays do; make a figure if there are none."""
        self._set("_owns_figure", ax is None)
        if ax is None:
            ax = self._new_axes(width, height)[0]
        self._set("ax_", ax)
        self._set("figure_", ax.figure)
        return ax

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @staticmethod
    def _new_axes(width: float, height: float, rows: int = 1, columns: int = 1) -> list[Axes]:
        pyplot = optional("matplotlib.pyplot", extra="plot")
        _, axes = pyplot.subplots(
            rows, columns, figsize=(width, height), layout="constrained", squeeze=False
        )
        return list(axes.ravel())

    def _label_rows(self, labels: Sequence[str], fontsize: str | None = None) -> None:
        """Label the rows of a horizontal plot, from top to bottom."""
        self.ax_.set_yticks(range(len(labels)), labels, fontsize=fontsize)
        self.ax_.set_ylim(len(labels) - 0.5, -0.5)

    def _set_title(self, text: str) -> None:
        """Write a sentence above the whole figure if it is new, and above the axes otherwise."""
        if self._owns_figure:
            figure = _whole_figure(self.ax_)
            figure.suptitle(wrapped(text, int(figure.get_figwidth() * 13)), fontsize="small")
        else:
            self.ax_.set_title(wrapped(text, 70), fontsize="small")

    def _draw_legend(
        self, handles: Sequence[Artist] | None = None, labels: Sequence[str] | None = None
    ) -> None:
        """Draw the legend below the figure if it is new, and inside the axes otherwise."""
        if handles is None or labels is None:
            handles, labels = self.ax_.get_legend_handles_labels()
        if not self._owns_figure:
            self.ax_.legend(handles, labels, fontsize="small")
            return
        figure = _whole_figure(self.ax_)
        room = int(figure.get_figwidth() * 12) // (max(map(len, labels)) + 7)
        columns = max(1, min(len(labels), room))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


class ListDisplay(Display, Generic[Item]):
    """Base of the displays whose only field is a list, which is also their value in JSON."""

    @property
    def _items(self) -> list[Item]:
        items: list[Item] = getattr(self, self._field_names()[0])
        return items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __getitem__(self, position: int) -> Item:
        return self._items[position]

    def to_plain(self) -> Json:
        """Convert the list of records.

        Returns
        -------
        list
            The records as plain values.
        """
        return plain(self._items)


def nothing_to_draw() -> InvalidInputError:
    """Build the error for a plot of weights that do not depend on the input."""
    return InvalidInputError(
        "There is nothing to draw: the weights are the same for every row, or the gate has no "
        "features. Use predict_weights to see the weights."
    )


def series_style(index: int) -> SeriesStyle:
    """Return the style of a series; the styles repeat if there are more series."""
    return SERIES[index % len(SERIES)]


def two_errors(errors: Sequence[float | None]) -> Float64:
    """Return two standard errors, the length of a bar; NaN, which draws no bar, for None.

    >>> two_errors([0.5, None]).tolist()
    [1.0, nan]
    """
    return 2 * np.array(errors, dtype=np.float64)


def name_text(name: str, longest: int = 28) -> str:
    """Shorten a name for matplotlib, and keep it from being read as mathematics.

    >>> name_text("$x_1$")
    '\\\\$x_1\\\\$'
    """
    text = short(name, longest)
    if text.startswith("_"):  # a legend leaves these out; a zero-width space does not show
        text = f"\u200b{text}"
    return text.replace("$", r"\$")


def wrapped(text: str, width: int) -> str:
    """Break a sentence into lines, and keep it from being read as mathematics."""
    return "\n".join(wrap(text, width)).replace("$", r"\$")


def _whole_figure(ax: Axes) -> Figure:
    """Return the figure of the axes, also if they are in a subfigure."""
    figure: Any = ax.figure
    return figure.figure
