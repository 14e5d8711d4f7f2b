"""Hourly electricity prices of two markets, with the forecasts of eight fixed models.

The first year is the labelled sample, and the second year is the test part. The inputs of the gate
are known when the forecasts are made: hour, weekday and season, and in the variant "lagged" also
prices and errors of the forecasts a day and a week ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.dependence_data import Part
from studies.safety_data import absent, read_columns

Array = NDArray[np.floating]
Integers = NDArray[np.integer]

FILES = {
    "Germany": "prices/de_day_ahead.parquet",
    "France": "prices/fr_day_ahead.parquet",
}
DAY, WEEK = 24, 168
YEAR = 365.25 * DAY
FORECASTS = "pred_"
"""Prefix of the columns with forecasts."""


@dataclass(frozen=True)
class Hours:
    """Hours in order of time. Inputs X (n, p), forecasts P (n, M), prices y (n,), hour (n,)."""

    X: Array
    P: Array
    y: Array
    hour: Integers

    def part(self, groups: str | None = None) -> Part:
        """The rows; for "days" and "weeks" with these groups."""
        lengths = {"days": DAY, "weeks": WEEK}
        numbers = self.hour // lengths[groups] if groups in lengths else None
        return Part(self.X, self.P, self.y, numbers)

    def weekly_means(self, values: Array) -> Array:
        """Mean of values (n,) in each week."""
        weeks = np.unique(self.hour // WEEK, return_inverse=True)[1]
        return np.bincount(weeks, weights=values) / np.bincount(weeks)


@dataclass(frozen=True)
class Series:
    """Prices y (n,) of consecutive hours from `start` on, and forecasts P (n, M)."""

    start: np.datetime64
    P: Array
    y: Array

    @classmethod
    def of(cls, columns: Mapping[str, NDArray[np.generic]]) -> Series:
        """Read the columns time, price and pred_*. No hour may be missing."""
        times = columns["time"].astype("datetime64[h]")
        if not (np.diff(times) == np.timedelta64(1, "h")).all():
            raise ValueError("The price series must have one row for every hour, in order.")
        forecasts = [column for name, column in columns.items() if name.startswith(FORECASTS)]
        return cls(times[0], np.column_stack(forecasts), columns["price"])

    def split(self, *, lagged: bool) -> tuple[Hours, Hours]:
        """First and second half; the first week is left out, since it has no lagged values."""
        hour = np.arange(WEEK, len(self.y))
        X = self._calendar(hour)
        if lagged:
            X = np.column_stack([X, *(self._at(hour - lag) for lag in (DAY, WEEK))])
        rows = Hours(X, self.P[hour], self.y[hour], hour)
        half = len(self.y) // 2 - WEEK
        return _rows(rows, slice(None, half)), _rows(rows, slice(half, None))

    def _calendar(self, hour: Integers) -> Array:
        """Sine and cosine of the positions in the day, the week and the year: (n, 6)."""
        since_monday = (self.start - np.datetime64("1970-01-05T00", "h")).astype(int)
        since_january = (self.start - self.start.astype("datetime64[Y]")).astype(int)
        angles = [
            2 * np.pi * (hour + shift) / length
            for shift, length in ((since_monday, DAY), (since_monday, WEEK), (since_january, YEAR))
        ]
        return np.column_stack([wave(angle) for angle in angles for wave in (np.sin, np.cos)])

    def _at(self, hour: Integers) -> Array:
        """Price, and error of each forecast, at these hours: (n, 1 + M)."""
        errors = self.y[hour, np.newaxis] - self.P[hour]
        return np.column_stack([self.y[hour], errors])


def _rows(hours: Hours, rows: slice) -> Hours:
    return Hours(hours.X[rows], hours.P[rows], hours.y[rows], hours.hour[rows])


def markets(folder: Path) -> list[str]:
    """Markets whose file is in the data folder."""
    return [market for market, file in FILES.items() if absent(folder, file) is None]


def load(folder: Path, market: str) -> Series:
    """Read the series of a market."""
    return Series.of(read_columns(folder / FILES[market]))
