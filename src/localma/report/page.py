"""One HTML page from a summary, which needs no other file and no network.

The templates read the summary. Charts are SVG, so that the page can be read and printed without
JavaScript. The script on the page sorts, picks and points; it reads data as JSON and writes text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from localma._optional import optional
from localma._types import Json
from localma.formatting import (
    count,
    fixed,
    mean_loss,
    number,
    percent,
    short,
    with_error,
)
from localma.inspection.comparison import ComparisonDisplay, ConstantEntry, Entry
from localma.inspection.observed import Measured, decimals_of_column
from localma.inspection.path import CONSTANT_NAMES, LocalityGainRecord
from localma.inspection.summary import SampledRows, Summary
from localma.production.monitor_report import evidence_text
from localma.records import Output, plain
from localma.report import charts
from localma.report.charts import Styles, palette
from localma.storage.whole_files import write_whole

TITLE = "Who is trusted where"
FOLDER = Path(__file__).parent
MOST_CANDIDATES = 100
FEATURES_OF_ROW = 12
LONGEST_VALUE = 120


def render(summary: Summary | Mapping[str, Json], *, title: str | None = None) -> str:
    """Turn a summary into the text of an HTML page.

    Parameters
    ----------
    summary : Summary or dict
        From `localma.inspection.summarize`, or its `to_dict` read back from JSON.
    title : str, optional
        The heading of the page.

    Returns
    -------
    str
        The same text for the same summary.

    Examples
    --------
    >>> import numpy as np
    >>> from localma import LocalMARegressor
    >>> from localma.inspection import summarize
    >>> model = LocalMARegressor({"a<b": lambda X: X[:, 0]}, gate="equal")
    >>> model = model.fit([[0.0], [1.0]], [0.0, 1.0])
    >>> page = render(summarize(model, [[0.0], [1.0]]), title="One model")
    >>> "<h1>One model</h1>" in page, "a&lt;b" in page, "a<b" in page
    (True, True, False)
    """
    if not isinstance(summary, Summary):
        summary = Summary.from_dict(summary)
    styles = Styles(summary)
    versions = {name: version(name) for name in ("localma", "numpy", "scikit-learn")}
    style, script = palette() + asset("page.css"), asset("page.js")
    page: str = (
        environment()
        .get_template("page.html")
        .render(
            summary=summary,
            styles=styles,
            title=TITLE if title is None else title,
            key_numbers=key_numbers(summary),
            versions=versions | {"Python": platform.python_version()},
            style=style,
            script=script,
            hashes={"style": hash_of(style), "script": hash_of(script)},
            data=safe_json(_script_data(summary, styles)),
        )
    )
    return page


def write(
    summary: Summary | Mapping[str, Json], path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write the page of a summary to a file, completely or not at all.

    Parameters
    ----------
    summary : Summary or dict
        From `localma.inspection.summarize`, or its `to_dict` read back from JSON.
    path : str or path
        The file to write. An existing file is replaced.
    title : str, optional
        The heading of the page.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from localma import LocalMARegressor
    >>> from localma.inspection import summarize
    >>> model = LocalMARegressor({"a": lambda X: X[:, 0]}, gate="equal")
    >>> model = model.fit([[0.0], [1.0]], [0.0, 1.0])
    >>> with TemporaryDirectory() as folder:
    ...     write(summarize(model, [[0.0], [1.0]]), Path(folder) / "report.html")
    """
    text = render(summary, title=title)
    # A name that was read with the wrong encoding may contain characters that UTF-8 lacks.
    write_whole(Path(path), text.encode("utf-8", errors="replace"))


def safe_json(value: object) -> str:
    """Write JSON that is safe inside a script element.

    >>> safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


class Tile(NamedTuple):
    """A number to read first."""

    value: str
    label: str
    note: str = ""


def key_numbers(summary: Summary) -> list[Tile]:
    """Choose the four numbers below the verdict."""
    tiles = []
    if summary.comparison is not None:
        tiles += _loss_tiles(summary.comparison)
    if summary.spread is not None:
        effective = summary.spread.effective
        ends = dict.fromkeys(number(end, 2) for end in (effective.low, effective.high))
        tiles.append(
            Tile(
                f"{number(effective.mean, 2)} of {effective.n_candidates}",
                "candidates effectively used in a row, on average",
                f"mostly {' to '.join(ends)}" * (len(ends) > 1),
            )
        )
    if summary.support is not None and summary.support.guarded:
        outside = percent(summary.support.outside)
        tiles.append(Tile(outside, "rows outside the labelled sample"))
    features = count(summary.model.n_features, "feature")
    return [*tiles, Tile(f"{summary.data.n_rows:,}", "rows", features)][:4]


def _loss_tiles(comparison: ComparisonDisplay) -> list[Tile]:
    """Show the loss of the model, and its difference to the other methods."""
    model, constant = comparison.model, comparison.constant
    label = f"{mean_loss(comparison.loss)} with {model.name}"
    rivals: Iterable[tuple[str, Entry | ConstantEntry]] = comparison.rivals
    if constant is not None and constant.is_idle:
        # The model may be better than its candidates, and still be useless.
        rivals = [(constant.name, constant)]
    loss = Tile(number(model.loss.value), label, _plus_minus(model.loss))
    if comparison.loss == "squared_error":  # the root is in the unit of the target
        rmse = model.metrics["rmse"]
        loss = Tile(
            number(rmse.value), f"root mean squared error with {model.name}", _plus_minus(rmse)
        )
    measure = mean_loss(comparison.loss)
    return [
        loss,
        *(_against(entry, model.loss.value, measure, short(name, 50)) for name, entry in rivals),
    ]


def _against(entry: Entry | ConstantEntry, loss: float | None, measure: str, name: str) -> Tile:
    """Compare the model with an entry, in percent if the losses are positive."""
    gap, risk = entry.to_model, entry.loss.value
    if gap.value is None or risk is None or loss is None:
        return Tile(number(None), f"compared with {name}")
    if gap.value == 0:
        return Tile(number(0.0), f"difference to {name}", _plus_minus(gap))
    direction = "lower" if gap.value > 0 else "higher"
    label = f"{direction} {measure} than {name}{', not clearly' * (not gap.is_clear)}"
    size = number(abs(gap.value))
    if risk > 0 and loss >= 0 and abs(gap.value) < 10 * risk:
        return Tile(percent(abs(gap.value) / risk), label, f"{size} {_plus_minus(gap)}")
    return Tile(size, label, _plus_minus(gap))


def _plus_minus(measured: Measured) -> str:
    if measured.standard_error is None:
        return ""
    return f"± {number(measured.standard_error, 2)}"


def gain_tiles(gain: LocalityGainRecord) -> list[Tile]:
    """Choose the numbers above the path."""
    value, error = with_error(gain.value, gain.standard_error, 2)
    tiles = [
        Tile(value, "locality gain, held out", ", ".join(filter(None, [error, gain.clarity]))),
        Tile(number(gain.global_risk), "held-out risk of global weights"),
        Tile(number(gain.risk), "held-out risk of this model"),
    ]
    if gain.global_risk and gain.global_risk > 0 and not gain.is_idle:
        saved = percent((gain.value or 0.0) / gain.global_risk)
        tiles.append(Tile(saved, "lower risk than global weights"))
    return tiles


def _script_data(summary: Summary, styles: Styles) -> dict[str, Json]:
    """Collect the data of the script: the rows, and the weights of each cell of the map."""
    data: dict[str, Json] = {"rows": None, "map": None}
    if summary.map is not None:
        weights = np.array(summary.map.weights, dtype=np.float64)  # NaN becomes None again
        data["map"] = {
            "series": plain(styles.of(summary.map)),
            "weights": plain(weights.reshape(len(weights), -1).round(6)),
        }
    if summary.rows is not None:
        # The features that change the weights most come first.
        names = dict.fromkeys([*summary.importance.features, *summary.rows.features])
        features = [name for name in names if name in summary.rows.features][:FEATURES_OF_ROW]
        regions = [] if summary.regions is None else summary.regions.regions
        data["rows"] = {
            "series": plain(styles.of(summary.rows)),
            "features": [short(name, LONGEST_VALUE) for name in features],
            "regions": [short(region.sentence, 400) for region in regions],
            "rows": [_row_data(summary.rows, row, features) for row in summary.rows.order],
        }
    return data


def _row_data(rows: SampledRows, row: int, features: list[str]) -> Json:
    return {
        "index": str(rows.index[row]),
        "weights": [round(weight or 0.0, 6) for weight in rows.weights[row]],
        "region": rows.region[row],
        "support": percent(rows.support[row]),
        "prediction": _output(rows.prediction, row),
        "target": _output(rows.target, row),
        "features": [short(rows.features[name][row], LONGEST_VALUE) for name in features],
    }


def _output(outputs: list[Output] | None, row: int) -> str:
    """Write the prediction or the target of a row."""
    if outputs is None:
        return ""
    return short(number(outputs[row]), LONGEST_VALUE)


def asset(name: str) -> str:
    """Read a style or a script of the pages."""
    return (FOLDER / "assets" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """Name a style or a script that the content security policy allows."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def sort_key(value: Output) -> Output:
    """Return the value that a column is sorted by; empty if there is none."""
    return "" if value is None or isinstance(value, list) else value


def sentence(text: str) -> str:
    """Begin a text with a capital letter.

    >>> sentence("no test is clear.")
    'No test is clear.'
    """
    return text[:1].upper() + text[1:]


@cache
def environment() -> Any:
    """Load the templates, with the functions that they call."""
    jinja2 = optional("jinja2", extra="report")
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (charts.coordinate, count, evidence_text, fixed, mean_loss, number, percent, short)
    templates.filters |= {
        function.__name__: function for function in (*filters, sentence, sort_key)
    }
    templates.filters["decimals"] = decimals_of_column
    templates.globals |= {
        "charts": charts,
        "constant_names": CONSTANT_NAMES,
        "gain_tiles": gain_tiles,
        "most_candidates": MOST_CANDIDATES,
        "output": _output,
        "with_error": with_error,
    }
    return templates
