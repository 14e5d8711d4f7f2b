"""The table of a stored run, with its aims, and log-log figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from math import ceil, log10
from pathlib import Path
from typing import Any

from localma._optional import optional

AT_LEAST, AT_MOST = "at least", "at most"

Aim = tuple[str, float] | None
AIMS: dict[str, dict[str, Aim]] = {
    "engine": {
        "ratio_to_pytorch_loop": (AT_LEAST, 60),
        "ratio_to_pytorch_loop_n100": (AT_LEAST, 300),
        "ratio_to_jax": (AT_LEAST, 6),
        "fraction_of_sgemm": (AT_LEAST, 0.4),
    },
    "auto": {"ratio_auto_to_eight_pytorch_fits": (AT_MOST, 1)},
    "predict": {
        "one_row_microseconds_beyond": (AT_MOST, 100),
        "one_row_microseconds_beyond_given": (AT_MOST, 100),
        "one_row_microseconds_beyond_local": (AT_MOST, 100),
        "one_row_microseconds_beyond_local_given": (AT_MOST, 100),
        "one_row_microseconds_beyond_global": (AT_MOST, 100),
        "one_row_microseconds_beyond_global_given": (AT_MOST, 100),
        **{f"one_row_microseconds_of_{key}": None for key in ("answer", "routed", "deadline")},
        "ratio_deskit_to_predict": (AT_LEAST, 50),
        "ratio_deslib_to_predict": (AT_LEAST, 50),
        "predict_exponent_in_rows": (AT_MOST, 1.1),
    },
    "scale": {
        **{f"exponent_in_{axis}": (AT_MOST, 1.1) for axis in ("n", "p", "hidden", "classes")},
        "ratio_global_to_nnls": (AT_MOST, 1.5),
        "global_gap": (AT_MOST, 1e-8),
        "ratio_auto_to_hist_gradient_boosting": (AT_MOST, 0.5),
        "ratio_time_per_row_1000000_to_10000": (AT_MOST, 1.2),
    },
    "sizes": {
        "ratio_processor_time_to_boosting_100": None,
        **{f"ratio_processor_time_to_boosting_{n}": (AT_MOST, 1) for n in (1000, 10_000, 19_000)},
        "ratio_processor_time_to_boosting_1000000": (AT_MOST, 0.17),
        **{
            f"ratio_processor_time_to_lightgbm_{n}": None
            for n in (100, 1000, 10_000, 19_000, 1_000_000)
        },
        **{
            f"ratio_processor_time_of_{kind}_{n}": None
            for kind in ("own", "trees")
            for n in (1000, 10_000)
        },
        "largest_fall_of_processor_time": (AT_MOST, 0.1),
        "ratio_wide_to_ridge": (AT_MOST, 1),
    },
    "production": {
        "seconds_beyond_deadline": (AT_MOST, 0.05),
        "failing_candidates_named": (AT_LEAST, 3),
        "share_of_rows_answered": (AT_LEAST, 1),
        "ratio_risk_to_healthy_candidates": (AT_MOST, 1),
        "seconds_of_two_slow_servers": (AT_MOST, 1.2),
        "share_of_equal_answers_by_16_threads": (AT_LEAST, 1),
        "growth_of_memory": (AT_MOST, 0.02),
    },
    "serving": {
        **{
            f"p50_over_bare_service_{kind}{way}": (AT_MOST, 1.3)
            for kind in ("linear", "trees")
            for way in ("", "_in_loop")
        },
        **{f"requests_per_second_{kind}": None for kind in ("linear", "trees")},
        "wrong_or_missing_answers_under_overload": (AT_MOST, 0),
        "growth_of_memory_in_ten_minutes": (AT_MOST, 0.02),
    },
    "ray": {
        **{
            f"ratio_ray_to_processes_{part}": (AT_MOST, 1.15)
            for part in ("predict", "fit", "study")
        },
        "ratio_ray_to_one_process_folds": None,
        "object_store_over_its_bound": (AT_MOST, 1),
    },
    "start": {
        "import_ratio": (AT_MOST, 1.3),
        "first_fit_seconds": (AT_MOST, 15),
        "first_predict_seconds": (AT_MOST, 3),
    },
}
"""Aim of each figure, or None. Exponents are slopes of measured times, which vary."""

MEMORY_MIB = 1024.0
BEGIN, END = "<!-- results: made by `python -m benchmarks table` -->", "<!-- end of results -->"
BLUE, GREY, RED = "#0072B2", "#999999", "#D55E00"


def by_name(stored: dict[str, Any]) -> dict[str, Any]:
    """Results by benchmark, for files with one benchmark or several."""
    return {stored["benchmark"]: stored} if "benchmark" in stored else stored


def separate(folder: Path) -> dict[str, Any]:
    """Figures of the benchmarks that have commands and files of their own, as far as stored."""
    found = {}
    for name, figures in {"serving": _of_serving, "ray": _of_ray}.items():
        file = folder / f"{name}.json"
        if file.exists():
            found[name] = {"reasons": {}} | figures(json.loads(file.read_text()))
    return found


def _of_serving(stored: dict[str, Any]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for kind, one in stored.get("latency", {}).items():
        figures[f"p50_over_bare_service_{kind}"] = one["p50 of ours over bare"]
        figures[f"p50_over_bare_service_{kind}_in_loop"] = one["p50 of ours over bare in the loop"]
        figures[f"requests_per_second_{kind}"] = one["ours"]["requests_per_second"]
    loads = [load for kind in stored.get("overload", {}).values() for load in kind.values()]
    if loads:
        wrong = sum(load["wrong"] + load["no_answer"] for load in loads)
        figures["wrong_or_missing_answers_under_overload"] = wrong
    if "memory" in stored:
        figures["growth_of_memory_in_ten_minutes"] = stored["memory"]["growth"]
    return figures


def _of_ray(stored: dict[str, Any]) -> dict[str, float]:
    figures = {
        f"ratio_ray_to_processes_{part}": stored[part]["median_ratio"]
        for part in ("predict", "fit", "study")
        if part in stored
    }
    if "folds" in stored:
        figures["ratio_ray_to_one_process_folds"] = stored["folds"]["median_ratio"]
    if "memory" in stored:
        used, bound = stored["memory"]["MiB"], stored["memory"]["bound_of_each_MiB"]
        largest = max(value for name, value in used.items() if name.startswith("each"))
        figures["object_store_over_its_bound"] = largest / bound
    return figures


def table(stored: dict[str, Any]) -> str:
    """The figures and their aims, in Markdown."""
    lines = ["| figure | measured | aim | reached |", "|---|---|---|---|"]
    for name, result in by_name(stored).items():
        lines += [_line(result, key, aim) for key, aim in AIMS[name].items()]
        for peak in result.get("memory", []):
            used, skipped = peak.get("peak_beyond_input_mib"), peak.get("skipped")
            shown = skipped or f"{used:.0f} MiB"
            reached = "not measured" if skipped else _word(used <= MEMORY_MIB)
            what = f"memory beyond the input, n={peak['n']}"
            lines.append(f"| {what} | {shown} | at most {MEMORY_MIB:g} MiB | {reached} |")
    return "\n".join(lines)


def _line(result: dict[str, Any], key: str, aim: Aim) -> str:
    value, shown_aim = result.get(key), "none" if aim is None else f"{aim[0]} {aim[1]:g}"
    if value is None:
        reason = result["reasons"].get(key, "not measured at this size")
        return f"| `{key}` | {reason} | {shown_aim} | not measured |"
    return f"| `{key}` | {value:.3g} | {shown_aim} | {_reached(value, aim)} |"


def _reached(value: float, aim: Aim) -> str:
    if aim is None:
        return ""
    sign, limit = aim
    return _word(value >= limit if sign == AT_LEAST else value <= limit)


def _word(reached: bool) -> str:
    return "yes" if reached else "**no**"


def put_table(stored: dict[str, Any], page: Path) -> None:
    """Write the machine and the table between the two markers of a page."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    results = by_name(stored).values()
    machines = {_machine(result["machine"]) for result in results if "machine" in result}
    quick = any(result.get("quick") for result in results)
    notes = ["Small sizes, do not quote."] * quick + sorted(machines)
    made = "\n\n".join([*notes, table(stored)])
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")


def _machine(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{machine['system']}, Python {machine['python']}, {versions}."
    )


def draw(stored: dict[str, Any], folder: Path) -> list[Path]:
    """Draw growth along every axis and the times side by side; needs the extra "plot"."""
    optional("matplotlib", extra="plot").use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in _figures(by_name(stored)):
        paths.append(folder / f"{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        optional("matplotlib.pyplot", extra="plot").close(figure)
    return paths


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for axis, line in results.get("scale", {}).get("growth", {}).items():
        points = [(v, s) for v, s in zip(line["values"], line["seconds"], strict=True) if s]
        if points:
            yield f"growth-{axis}", _growth(axis, points, line)
    for name, result in results.items():
        timed = [row for row in result.get("rows", []) if not row["work"].startswith("growth")]
        if timed:
            yield f"times-{name}", _times(timed)


def _growth(axis: str, points: list[tuple[float, float]], line: dict[str, Any]) -> Any:
    """Times along an axis, with a line of slope one and the fitted line."""
    values, seconds = zip(*points, strict=True)
    figure, ax = _axes(4, 3)
    ax.loglog(values, seconds, "o", color=BLUE, label="localma")
    linear = [seconds[-1] * value / values[-1] for value in values]
    ax.loglog(values, linear, ":", color=GREY, label="linear")
    if line["exponent"] is not None:
        fitted = [(v, line["factor"] * v ** line["exponent"]) for v in line["fitted_to"]]
        label = f"slope {line['exponent']:.2f}"
        ax.loglog(*zip(*fitted, strict=True), "-", color=RED, label=label)
    ax.set(xlabel=axis, ylabel="seconds")
    ax.legend(frameon=False)
    return figure


def _times(rows: list[dict[str, Any]]) -> Any:
    """Median times as horizontal bars on a logarithmic scale, one per task."""
    figure, ax = _axes(7, 0.6 + 0.28 * len(rows))
    place, places, names = 0.0, [], []
    for work, group in groupby(rows, key=lambda row: row["work"]):
        for row in group:
            colour = BLUE if row["name"].startswith(("localma", "auto", "predict")) else GREY
            ax.barh(place, row["seconds"], color=colour)
            places.append(place)
            names.append(f"{work}: {row['name']}")
            place += 1.0
        place += 0.5
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    # Bars on a logarithmic scale start at the power of ten below the shortest one.
    shortest, longest = (pick(row["seconds"] for row in rows) for pick in (min, max))
    left = 10.0 ** (ceil(log10(shortest)) - 1)
    ax.set(xscale="log", xlabel="seconds", xlim=(left, max(1.3 * longest, 10.0 * left)))
    ax.tick_params(axis="x", which="minor", labelbottom=False)
    return figure


def _axes(width: float, height: float) -> tuple[Any, Any]:
    plots = optional("matplotlib.pyplot", extra="plot")
    figure, axes = plots.subplots(figsize=(width, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
