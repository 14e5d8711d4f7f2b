"""What a stored run shows: a table of its figures beside their aims, and log-log pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localma._optional import optional

AIMS = {
    "engine": {
        "ratio_to_pytorch_loop": "at least 60",
        "ratio_to_pytorch_loop_n100": "at least 300",
        "ratio_to_jax": "at least 6",
        "fraction_of_sgemm": "at least 0.4",
    },
    "auto": {"ratio_auto_to_eight_pytorch_fits": "below 1"},
    "predict": {
        "one_row_microseconds_beyond": "below 100",
        "ratio_deskit_to_predict": "at least 50",
        "ratio_deslib_to_predict": "at least 50",
        "predict_exponent_in_rows": "at most 1",
    },
    "scale": {
        "ratio_global_to_nnls": "at most 1.5",
        "global_gap": "at most 1e-8",
        "ratio_auto_to_hist_gradient_boosting": "at most 0.5",
        "ratio_time_per_row_1000000_to_10000": "at most 1.2",
    },
}


def by_name(stored: dict[str, Any]) -> dict[str, Any]:
    """Results by benchmark, whether one was stored or several."""
    return {stored["benchmark"]: stored} if "benchmark" in stored else stored


def table(stored: dict[str, Any]) -> str:
    """The figures in Markdown, beside what they should be."""
    lines = ["| figure | measured | aim |", "|---|---|---|"]
    for name, result in by_name(stored).items():
        for key, aim in AIMS[name].items():
            value = result.get(key)
            reason = result["reasons"].get(key, "not measured at this size")
            lines.append(f"| `{key}` | {reason if value is None else f'{value:.3g}'} | {aim} |")
        for axis, line in result.get("growth", {}).items():
            slope = line["exponent"]
            shown = "a fit did not count" if slope is None else f"{slope:.2f}"
            lines.append(f"| exponent of time in {axis} | {shown} | at most 1 |")
        for peak in result.get("memory", []):
            shown = peak.get("skipped") or f"{peak['peak_beyond_input_mib']:.0f} MiB"
            lines.append(f"| memory beyond the input, n={peak['n']} | {shown} | below 1024 MiB |")
    return "\n".join(lines)


def draw(stored: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the growth along every axis, log-log; needs the extra "plot"."""
    growth = by_name(stored).get("scale", {}).get("growth", {})
    matplotlib = optional("matplotlib", extra="plot")
    matplotlib.use("Agg")
    plots = optional("matplotlib.pyplot", extra="plot")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for axis, line in growth.items():
        points = [(v, s) for v, s in zip(line["values"], line["seconds"], strict=True) if s]
        if not points:
            continue
        values, seconds = zip(*points, strict=True)
        figure, ax = plots.subplots(figsize=(4, 3), layout="constrained")
        ax.loglog(values, seconds, "o-", color="#0072B2", label="localma")
        linear = [seconds[-1] * value / values[-1] for value in values]
        ax.loglog(values, linear, ":", color="#999999", label="linear")
        ax.set(xlabel=axis, ylabel="seconds")
        ax.legend(frameon=False)
        paths.append(folder / f"growth-{axis}.svg")
        figure.savefig(paths[-1])
        plots.close(figure)
    return paths
