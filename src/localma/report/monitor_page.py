"""One HTML page from the report of a monitor, in the style of the page of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from localma._types import Json
from localma.formatting import percent
from localma.production.monitor_report import ALARM, MonitorBlock, MonitorReport, evidence_text
from localma.report import charts
from localma.report.charts import OTHERS, Scale, Style, Tick, palette
from localma.report.page import Tile, asset, environment, hash_of
from localma.storage.whole_files import write_whole

TITLE = "What has changed"
MOST_DRAWN = 8
"""Candidates in a chart; with more, only the combination is drawn."""


def render_monitor(report: MonitorReport | Mapping[str, Json], *, title: str | None = None) -> str:
    """Turn the report of a monitor into the text of an HTML page.

    Parameters
    ----------
    report : MonitorReport or dict
        From `Monitor.report`, or its `to_dict` read back from JSON.
    title : str, optional
        The heading of the page.

    Returns
    -------
    str
        The same text for the same report.

    Examples
    --------
    >>> import numpy as np
    >>> from localma import LocalMARegressor
    >>> from localma.production import Monitor
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = LocalMARegressor({"a<b": lambda X: X[:, 0]}, gate="equal").fit(X, X[:, 0])
    >>> monitor = Monitor(model)
    >>> monitor.observe(X)
    >>> page = render_monitor(monitor.report(), title="One model")
    >>> "<h1>One model</h1>" in page, "a&lt;b" in page, "a<b" in page
    (True, True, False)
    """
    if not isinstance(report, MonitorReport):
        report = MonitorReport.from_dict(report)
    style = palette() + asset("page.css")
    page: str = (
        environment()
        .get_template("monitor.html")
        .render(
            report=report,
            title=TITLE if title is None else title,
            advice=report.sentence.partition(": "),
            alarm=ALARM,
            tiles=_tiles(report),
            charts_of=[chart for chart in _charts(report) if len(chart.xs) > 1],
            version=version("localma"),
            style=style,
            hashes={"style": hash_of(style)},
        )
    )
    return page


def write_monitor(
    report: MonitorReport | Mapping[str, Json],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
) -> None:
    """Write the page of a monitor to a file, completely or not at all.

    Parameters
    ----------
    report : MonitorReport or dict
        From `Monitor.report`, or its `to_dict` read back from JSON.
    path : str or path
        The file to write. An existing file is replaced.
    title : str, optional
        The heading of the page.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from localma import LocalMARegressor
    >>> from localma.production import Monitor
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal")
    >>> monitor = Monitor(model.fit([[0.0], [1.0]], [0.0, 1.0]))
    >>> with TemporaryDirectory() as folder:
    ...     write_monitor(monitor.report(), Path(folder) / "monitor.html")
    """
    text = render_monitor(report, title=title)
    write_whole(Path(path), text.encode("utf-8", errors="replace"))


def _tiles(report: MonitorReport) -> list[Tile]:
    outside = next((test for test in report.tests if test.kind == "outside"), None)
    tiles = [
        Tile(evidence_text(report.evidence), "evidence of a change", f"alarm at {ALARM:g}"),
        Tile(f"{report.rows:,}", "rows observed"),
        Tile(f"{report.labelled:,}", "of them labelled", f"{report.waiting:,} waiting"),
    ]
    if outside is not None:
        tiles.append(Tile(percent(outside.now), "rows unlike the labelled sample"))
    return tiles


class Line:
    """A line of a chart: its style, and its values by block."""

    def __init__(self, style: Style, values: Sequence[float | None]) -> None:
        self.style, self.values = style, values


class BlockChart:
    """A chart over blocks of periods: lines, and a level of the fit."""

    def __init__(
        self,
        name: str,
        blocks: Sequence[MonitorBlock],
        lines: Sequence[Line],
        fit: float | None = None,
    ) -> None:
        self.name, self.fit, self.lines = name, fit, lines
        self.xs = [float(block.start) for block in blocks]
        drawn = [value for line in lines for value in line.values if value is not None]
        self.x = charts.around(self.xs, share=0.02)
        self.y: Scale = charts.for_losses([*drawn, fit] if drawn else [fit])
        self.y_ticks = charts.ticks(self.y)
        self.x_ticks: list[Tick] = [
            tick for tick in charts.ticks(self.x, 6) if "." not in tick.label
        ]

    def points(self, line: Line) -> list[tuple[str, str]]:
        """Coordinates of a line."""
        return charts.polyline(self.x, self.xs, self.y, line.values)


def _charts(report: MonitorReport) -> list[BlockChart]:
    blocks = report.blocks
    names = [times.candidate for times in report.times]
    drawn = range(len(names)) if len(names) <= MOST_DRAWN else range(0)
    styles = [Style.numbered(name, m % OTHERS, str(m + 1)) for m, name in enumerate(names)]
    combination = Style("combination", colour="k-local", mark="local")
    fit = next((test.at_fit for test in report.tests if test.kind == "combination"), None)
    labelled = [block for block in blocks if block.labelled]
    losses = [Line(combination, [block.loss for block in labelled])]
    losses += [Line(styles[m], [block.candidate_losses[m] for block in labelled]) for m in drawn]
    weights = [Line(styles[m], [block.weights[m] for block in blocks]) for m in drawn]
    outside = [Line(combination, [block.outside for block in blocks])]
    found = [BlockChart("mean loss", labelled, losses, fit)]
    found.append(BlockChart("mean weight", blocks, weights))
    found.append(BlockChart("share of rows unlike the labelled sample", blocks, outside))
    return [chart for chart in found if any(v is not None for li in chart.lines for v in li.values)]
