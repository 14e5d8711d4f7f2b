"""Error by region: everybody's loss on one line per region, and as a table."""

from __future__ import annotations

from typing import Any

from localma.inspection.region_errors import EntryName, ErrorByRegionDisplay, RegionLosses
from localma.report.scales import Scale, coordinate, for_losses, ticks, whisker
from localma.report.styles import Style, Styles, kind_style
from localma.wording import decimals_for, number, with_error


def region_errors(part: ErrorByRegionDisplay | None, styles: Styles) -> dict[str, Any] | None:
    """A strip per region with a mark per entry; the model is drawn last, over the others."""
    if part is None or not part.regions:
        return None
    series = [_style(entry, styles) for entry in part.entries]
    losses = [loss for region in part.regions for loss in region.loss]
    errors = [error for region in part.regions for error in region.standard_error]
    scale = for_losses(losses, errors)
    decimals = decimals_for(errors, losses)
    return {
        "loss": part.loss,
        "series": series,
        "ticks": ticks(scale, 5),
        "regions": [_strip(region, series, scale, decimals) for region in part.regions],
    }


def _style(entry: EntryName, styles: Styles) -> Style:
    if entry.kind == "candidate":
        return styles.at(styles.places[entry.name])
    return kind_style(entry.kind, entry.name)


def _strip(
    region: RegionLosses, series: list[Style], scale: Scale, decimals: int
) -> dict[str, Any]:
    best = region.best
    return {
        "where": region.where,
        "n": region.n,
        "best": series[best].name,
        "marks": _marks(region, series, scale),
        "cells": [
            _cell(loss, error, decimals) | {"is_best": e == best}
            for e, (loss, error) in enumerate(zip(region.loss, region.standard_error, strict=True))
        ],
    }


def _cell(loss: float | None, error: float | None, decimals: int) -> dict[str, Any]:
    value, said = with_error(loss, error, decimals)
    return {"sort": loss, "value": value, "error": said}


def _marks(region: RegionLosses, series: list[Style], scale: Scale) -> list[dict[str, Any]]:
    marks = []
    for style, loss, error in zip(series, region.loss, region.standard_error, strict=True):
        if loss is None:
            continue
        low, high = whisker(scale, loss, error)
        marks.append(
            {
                "style": style,
                "at": coordinate(scale.at(loss)),
                "low": low,
                "high": high,
                "is_beyond": scale.is_beyond(loss),
                "says": f"{style.name}: {number(loss)}",
            }
        )
    return marks
