"""Motor insurance: claims and amounts of two public portfolios, by region.

Belgium is `beMTPL97` and the pricing game is `pg15training`, both from the R package CASdatasets.
The target of a policy is a rate per year of exposure, and its weight is the exposure. A mean loss
is therefore a loss per insured year. The weight of an average amount is the number of its claims.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from studies.regressing import Companies, Split
from studies.safety_data import absent, data_folder, read_columns

Array = NDArray[np.floating]
Columns = dict[str, NDArray[Any]]

THOUSAND = 1000.0
LARGEST_AMOUNT = 20.0
"""Average amounts of the Belgian portfolio are cut here, in thousands. One in 130 is larger."""

HELD_OUT, BUILDING = 0.5, 0.3
"""Shares of the rows for testing and for building candidates; the rest gives the sample."""


def split(portfolio: Companies, n: int, rng: np.random.Generator) -> Split:
    """Draw the parts: half for testing, three tenths for candidates, n of the rest as sample."""
    total = len(portfolio.y)
    ends = np.array([round(HELD_OUT * total), round((HELD_OUT + BUILDING) * total)])
    test, build, rest = np.split(rng.permutation(total), ends)
    if len(rest) < n:
        raise InvalidInputError(
            f"The sample has at most a fifth of the rows, {len(rest)}; "
            f"received n={n}. Ask for a smaller one."
        )
    return Split(build, rest[:n], test)


N_NUMBERS = 6
"""Number of numeric inputs, which come first; the others are 0 or 1."""


def _belgian_inputs(columns: Columns) -> dict[str, NDArray[Any]]:
    numbers = {name: columns[name] for name in ("ageph", "bm", "power", "agec", "long", "lat")}
    return numbers | {
        "diesel": columns["fuel"] == "diesel",
        "woman": columns["sex"] == "female",
        "work": columns["use"] == "work",
        "fleet": columns["fleet"].astype(str) == "1",
        "TPL+": columns["coverage"] == "TPL+",
        "TPL++": columns["coverage"] == "TPL++",
    }


def _belgian_regions(columns: Columns) -> NDArray[Any]:
    """Nine regions by the first digit of the postcode."""
    return (columns["postcode"] // 1000).astype(str)


def _belgian_claims(columns: Columns) -> Companies:
    frequency = columns["nclaims"] / columns["expo"]
    inputs, regions = _belgian_inputs(columns), _belgian_regions(columns)
    return _companies(inputs, frequency, regions, columns["expo"])


def _belgian_amounts(columns: Columns) -> Companies:
    claimed = columns["amount"] > 0
    columns = {name: column[claimed] for name, column in columns.items()}
    average = np.minimum(columns["average"] / THOUSAND, LARGEST_AMOUNT)
    inputs, regions = _belgian_inputs(columns), _belgian_regions(columns)
    return _companies(inputs, average, regions, columns["nclaims"])


def _game(columns: Columns, per_policy: Array) -> Companies:
    names = ("Age", "Bonus", "Poldur", "Value", "Density", "Group1")
    inputs = {name: columns[name] for name in (*names, "Adind")}
    for name in ("Gender", "Type", "Category", "Occupation", "Group2"):
        inputs |= _indicators(name, columns[name])
    exposure = columns["Exppdays"] / 365.0
    return _companies(inputs, per_policy / exposure, columns["Group2"], exposure)


def _indicators(name: str, labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """One input of 0 and 1 per label except the first."""
    others = np.unique(labels.astype(str)).tolist()[1:]
    return {f"{name} {label}": labels == label for label in others}


def _companies(
    inputs: dict[str, NDArray[Any]], y: Array, region: NDArray[Any], weight: NDArray[Any]
) -> Companies:
    X = np.column_stack(list(inputs.values())).astype(float)
    return Companies(tuple(inputs), X, y, region.astype(str), weight.astype(float))


def _game_claims(columns: Columns) -> Companies:
    return _game(columns, columns["Numtppd"])


def _game_amounts(columns: Columns) -> Companies:
    return _game(columns, columns["Indtppd"] / THOUSAND)


BELGIUM, GAME = "insurance/beMTPL97.parquet", "insurance/pg15training.parquet"

READERS: dict[str, tuple[str, Callable[[Columns], Companies]]] = {
    "Belgium, claims": (BELGIUM, _belgian_claims),
    "Belgium, amounts": (BELGIUM, _belgian_amounts),
    "Pricing game, claims": (GAME, _game_claims),
    "Pricing game, amounts": (GAME, _game_amounts),
}
"""Key "data" of a cell -> its file, and the function that reads its target."""


def load(name: str) -> Companies:
    """Read one portfolio with one target."""
    return _load(name, data_folder())


@cache
def _load(name: str, folder: Path) -> Companies:
    file, read = READERS[name]
    reason = absent(folder, file)
    if reason:
        raise InvalidInputError(f"The policies of {name!r} are missing: {reason}.")
    return read(read_columns(folder / file))
