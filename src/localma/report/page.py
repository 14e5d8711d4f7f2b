"""From a summary to a page: one HTML file that needs nothing else, not even a network.

Every part of the summary has a function that turns it into what its template shows; pictures are
drawn here, as SVG, so that the page can be read and printed without JavaScript. The script on the
page only sorts, picks and points; it sees the data as JSON and writes them as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from localma._optional import optional
from localma.inspection.record import plain
from localma.inspection.summary import Summary
from localma.report.cards import cards
from localma.report.comparison import comparison
from localma.report.effects import effects
from localma.report.facts import facts, key_numbers, versions
from localma.report.path import path_chart
from localma.report.region_errors import region_errors
from localma.report.reliability import reliability
from localma.report.rows import rows
from localma.report.styles import MARKS, Styles, palette
from localma.report.trust import importance, regions
from localma.report.weight_map import weight_map
from localma.storage.whole_files import write_whole
from localma.wording import count, short

TITLE = "Who is trusted where"
FOLDER = Path(__file__).parent


def render(summary: Summary | Mapping[str, Any], *, title: str | None = None) -> str:
    """Turn a summary into the text of an HTML page.

    Parameters
    ----------
    summary : of `localma.inspection.summarize`, or its `to_dict` read back from JSON
    title : str, the heading of the page

    Returns
    -------
    str; the same for the same summary

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
    view = _view(summary)
    view["title"] = TITLE if title is None else title
    data = {"rows": _part(view["rows"], "data"), "map": _part(view["map"], "data")}
    style = palette() + _asset("page.css")
    script = _asset("page.js")
    return str(
        _environment()
        .get_template("page.html")
        .render(
            **view,
            style=style,
            script=script,
            hashes={"style": _hash(style), "script": _hash(script)},
            data=safe_json(plain(data)),
            marks=MARKS,
        )
    )


def write(
    summary: Summary | Mapping[str, Any], path: str | os.PathLike[str], *, title: str | None = None
) -> None:
    """Write the page of a summary to a file, which is there whole or not at all.

    Parameters
    ----------
    summary, title : see `render`
    path : of the file; one that is there is replaced
    """
    text = render(summary, title=title)
    # A name that was read with the wrong encoding may hold what UTF-8 cannot.
    write_whole(Path(path), text.encode("utf-8", errors="replace"))


def safe_json(value: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end that element.

    >>> safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _view(summary: Summary) -> dict[str, Any]:
    """What the templates show, part by part; None where a part is missing."""
    styles = Styles(summary)
    return {
        "verdict": summary.verdict,
        "cautions": summary.cautions,
        "same_weights": _same_weights(summary),
        "key_numbers": key_numbers(summary),
        "model": summary.model,
        "spread": summary.spread,
        "support": summary.support,
        "comparison": comparison(summary, styles),
        "regions": regions(summary.regions, styles),
        "importance": importance(summary.importance.rows),
        "effects": effects(summary.effects.effects, styles),
        "map": weight_map(summary.map, styles),
        "path": path_chart(summary.path),
        "region_errors": region_errors(summary.region_errors, styles),
        "reliability": reliability(summary.reliability),
        "cards": cards(summary, styles),
        "rows": rows(summary, styles),
        "facts": facts(summary),
        "versions": versions(),
    }


def _same_weights(summary: Summary) -> str | None:
    """The sentence that says so, if the weights are the same for every row."""
    part = summary.regions
    return None if part is None or part.regions else part.sentence


def _part(view: dict[str, Any] | None, name: str) -> Any:
    return None if view is None else view[name]


def _asset(name: str) -> str:
    return (FOLDER / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a content security policy names a text that may run or style the page."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


@cache
def _environment() -> Any:
    jinja2 = optional("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(short=short, count=count)
    return environment
