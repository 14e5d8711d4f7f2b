"""Tables in Markdown, with published figures next to ours, and their insertion in the README."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies import markdown
from studies.findings import Results
from studies.harness import Study, Table
from studies.pairs import table_against_best
from studies.published import find, load_published
from studies.storage import Store
from studies.summary import agree, deviation, records, results_of, shows

README = Path(__file__).parent / "README.md"
DISAGREES = "†"


def render(study: Study, results: Results, runs: Sequence[Mapping[str, Any]] = ()) -> str:
    """All tables and notes of a study, in Markdown."""
    parts = [render_table(study, table, results) for table in study.tables]
    parts.append(study.overview(results))
    notes = study.notes(results)
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    if study.comparison is not None:
        parts.append(table_against_best(results, study.comparison))
    if study.findings:
        parts.append(render_findings(study, results))
    if runs:
        parts.append(render_runs(runs))
    return "\n\n".join(part for part in parts if part)


def render_table(study: Study, table: Table, results: Results) -> str:
    """One table of means with standard deviations over replicates. Empty if nothing was run."""
    shown = [
        r for r in records(study, results) if shows(table, r["method"], r["metric"], r["keys"])
    ]
    if not shown:
        return ""
    columns = _columns(study, table, shown)
    body = []
    cells = dict.fromkeys(json.dumps(record["keys"]) for record in shown)
    for keys in sorted(map(json.loads, cells), key=lambda keys: _place(study, table, keys)):
        figures = [_figure(study, table, results, keys, column) for column in columns]
        body.append([*(_key(keys[name]) for name in table.rows), *figures])
    head = [*table.rows, *(_heading(study, column) for column in columns)]
    title = f"{table.published}: {table.title}" if table.published else table.title
    return f"**{title}** ({_counted(study, shown)})\n\n{markdown.table(head, body)}"


def _counted(study: Study, shown: Sequence[Mapping[str, Any]]) -> str:
    """The number of replicates, for each method if they differ."""
    of: dict[str, list[int]] = {}
    for record in shown:
        of.setdefault(record["method"], []).append(record["replicates"])
    alike: dict[tuple[int, int], list[str]] = {}
    for method, counts in of.items():
        name = f'"{study.labels.get(method, method)}"'
        alike.setdefault((min(counts), max(counts)), []).append(name)
    words = {
        pair: " to ".join(_key(n) for n in dict.fromkeys(pair)) for pair in sorted(alike)[::-1]
    }
    if len(alike) == 1:
        (pair,) = alike
        return f"{words[pair]} {'replicate' if pair == (1, 1) else 'replicates'}"
    return "replicates: " + "; ".join(
        f"{words[pair]} of {', '.join(alike[pair])}" for pair in words
    )


def _place(study: Study, table: Table, keys: Mapping[str, Any]) -> list[Any]:
    """Sort key of the row of a cell: numbers by size, names in the order of the study."""

    def place(row: str) -> Any:
        names = list(dict.fromkeys(cell.keys.get(row) for cell in study.cells))
        return names.index(keys[row]) if keys[row] in names else len(names)

    return [place(row) if isinstance(keys[row], str) else keys[row] for row in table.rows]


def _columns(study: Study, table: Table, shown: Sequence[Any]) -> list[tuple[str, str]]:
    """(kind, method) of each column; a published method comes before ours of the same name."""
    columns: list[tuple[str, str]] = []
    for method in table.methods:
        name = study.published_as.get(method)
        if table.published and name and ("published", name) not in columns:
            columns.append(("published", name))
        if any(record["method"] == method for record in shown):
            columns.append(("ours", method))
    return columns


def _heading(study: Study, column: tuple[str, str]) -> str:
    kind, method = column
    return f"{method}, published" if kind == "published" else study.labels.get(method, method)


def _figure(
    study: Study, table: Table, results: Results, keys: Mapping[str, Any], column: tuple[str, str]
) -> str:
    kind, method = column
    if kind == "published":
        figure = find(load_published(), method=method, metric=table.metric, **keys)
        return "" if figure is None else figure.text
    if not results.has_run(method, table.metric, **keys):
        return ""
    values = results.values(method, table.metric, **keys)
    text = _number(values.mean(), table.digits)
    if len(values) < 2:
        return text
    name = study.published_as.get(method)
    figure = find(load_published(), method=name, metric=table.metric, **keys)
    mark = DISAGREES if figure is not None and not agree(figure, values) else ""
    return f"{text} ({_number(deviation(values), 2)}){mark}"


def _key(value: str | int | float) -> str:
    """Format the value of a key, an integer with commas.

    >>> _key(100000), _key(0.1), _key("S1")
    ('100,000', '0.1', 'S1')
    """
    return value if isinstance(value, str) else f"{value:,}"


def _number(value: Any, digits: int) -> str:
    """Format a mean with this number of significant digits.

    >>> _number(0.36123, 3), _number(1.2e-7, 3)
    ('0.361', '1.20e-07')
    """
    if value == 0:
        return "0"
    text = f"{float(value):#.{digits}g}"
    return text.removesuffix(".") if "e" not in text else f"{float(value):.{digits - 1}e}"


def render_findings(study: Study, results: Results) -> str:
    """Statements of the paper and aims of this software, each with the verdict of our results.

    Statements about several panels are in a separate table, with a column per panel.
    """
    body = [
        [finding.words, finding.source, finding.verdict(results)]
        for finding in study.findings
        if not finding.panel
    ]
    panels = list(dict.fromkeys(finding.panel for finding in study.findings if finding.panel))
    verdicts: dict[tuple[str, str], dict[str, str]] = {}
    for finding in study.findings:
        if finding.panel:
            row = verdicts.setdefault((finding.words, finding.source), {})
            row[finding.panel] = finding.verdict(results)
    of_panels = [
        [*said, *(row.get(panel, "") for panel in panels)] for said, row in verdicts.items()
    ]
    parts = []
    if of_panels:
        parts.append(markdown.table(["finding", "source", *panels], of_panels))
    if body:
        parts.append(markdown.table(["finding", "source", "ours"], body))
    return "\n\n".join(parts)


def render_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """The time of each run."""
    body = [
        [
            ", ".join(run["methods"]),
            f"{run['replicates']:,}",
            f"{run['seconds']:,.0f} s",
            f"{run['worker_seconds']:,.0f} s",
            f"{run['workers'] or 'none'} on {run['machine']['cores']} cores",
        ]
        for run in runs
    ]
    head = ["methods run", "replicates", "time", "time of all workers", "workers"]
    return markdown.table(head, body)


def render_stored(study: Study, store: Store) -> str:
    """The stored results of a study, in Markdown; empty if there are none."""
    replicates = store.load()
    if not replicates:
        return ""
    summary = json.loads(store.summary_file.read_text()) if store.summary_file.exists() else {}
    return render(study, results_of(replicates), summary.get("runs", ()))


def insert(text: str, name: str, section: str) -> str:
    """Put a section between its two markers.

    >>> insert("<!-- a: begin -->old<!-- a: end -->", "a", "new").split("\\n\\n")
    ['<!-- a: begin -->', 'new', '<!-- a: end -->']
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"The page needs the markers {begin!r} and {end!r}, once each.")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}\n\n{section}\n\n{end}{after}"
