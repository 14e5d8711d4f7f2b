"""Rents of homes in Beijing and Shanghai, by district.

The paper's table was not available, and three others replace it (see `studies.rental`). These rows
are left out, in this order: rows with missing values, duplicate listings, rents above the 99th
percentile, and districts with fewer than 60 listings. Small districts are left out because each
district must have some rows in the smallest share that builds candidates, a tenth. The smallest
district of the paper has 162 listings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localma.errors import InvalidInputError
from studies.published import load_published
from studies.regressing import Companies, Split
from studies.safety_data import absent, complete, data_folder, read_columns

Array = NDArray[np.floating]
Columns = dict[str, NDArray[Any]]

SMALLEST_DISTRICT = 60
KEPT_QUANTILE = 0.99
N_THINNED = 2
"""Number of the largest districts that lose half of their rows after building candidates."""

BEIJING_DISTRICTS = {
    "昌平": "Changping", "朝阳": "Chaoyang", "东城": "Dongcheng", "海淀": "Haidian",
    "石景山": "Shijingshan", "丰台": "Fengtai", "大兴": "Daxing", "西城": "Xicheng",
    "通州": "Tongzhou", "房山": "Fangshan", "顺义": "Shunyi", "门头沟": "Mentougou",
}  # fmt: skip

SHANGHAI_DISTRICTS = {
    "嘉定": "Jiading", "奉贤": "Fengxian", "宝山": "Baoshan", "徐汇": "Xuhui", "普陀": "Putuo",
    "杨浦": "Yangpu", "浦东": "Pudong", "虹口": "Hongkou", "长宁": "Changning", "闵行": "Minhang",
    "静安": "Jingan", "闸北": "Jingan", "黄浦": "Huangpu", "松江": "Songjiang", "青浦": "Qingpu",
    "金山": "Jinshan",
}  # fmt: skip
"""Zhabei (闸北) has been part of Jing'an since 2015; the paper's table also has one district."""

FLOOR_LEVELS = {"地下室": 0.0, "低楼层": 0.0, "中楼层": 1.0, "高楼层": 2.0}
NO_DATA, SOUTH = "暂无数据", "南"


def largest(rents: Companies) -> list[str]:
    """Find the two districts with the most listings."""
    counts = rents.counts()
    return sorted(counts, key=lambda name: -counts[name])[:N_THINNED]


def split(rents: Companies, rho: float, rng: np.random.Generator) -> Split:
    """Draw the parts: 1 - rho of each district for candidates, half of the rest for testing."""
    build, rest = [], []
    thinned = largest(rents)
    for name in rents.counts():
        rows = rng.permutation(np.flatnonzero(rents.company == name))
        n_build = max(2, round((1 - rho) * len(rows)))
        build.append(rows[:n_build])
        others = rows[n_build:]
        rest.append(others[: len(others) // 2] if name in thinned else others)
    second = rng.permutation(np.concatenate(rest))
    return Split(np.concatenate(build), *np.array_split(second, 2))


def _beijing(columns: Columns) -> tuple[dict[str, Array], Array, NDArray[Any]]:
    names = ("area", "rooms", "bathrooms", "floor", "total_floors", "subway_lines", "subway_dist_m")
    return _numbers(columns, names), columns["rent"], _named(columns["district"], BEIJING_DISTRICTS)


def _shanghai_2020(columns: Columns) -> tuple[dict[str, Array], Array, NDArray[Any]]:
    names = ("area", "bedrooms", "total_floors", "floor_level", "elevator", "near_subway")
    inputs = _numbers(columns, (*names, "refurbished", "amenities"))
    inputs["parking"] = columns["parking"] != NO_DATA
    inputs["faces_south"] = np.char.find(columns["orientation"].astype(str), SOUTH) >= 0
    return inputs, columns["rent"], columns["district"].astype(str)


def _shanghai_2019(columns: Columns) -> tuple[dict[str, Array], Array, NDArray[Any]]:
    names = ["Area", "rooms", "living_rooms", "Layer_floor", "Is_lift", "Subwayline_Number"]
    names += ["Subway_Distance", "Is_bed", "Is_closet", "Is_air", "Is_gas", "Is_TV", "Is_fridge"]
    inputs = _numbers(columns, [*names, "Is_washer", "Is_heater", "Is_heating", "Is_wifi"])
    inputs["floor_level"] = np.array([FLOOR_LEVELS[level] for level in columns["Layer_class"]])
    return inputs, columns["Price"], _named(columns["Address"], SHANGHAI_DISTRICTS)


def _numbers(columns: Columns, names: Any) -> dict[str, Array]:
    return {name: np.asarray(columns[name], dtype=float) for name in names}


def _named(labels: NDArray[Any], names: Mapping[str, str]) -> NDArray[Any]:
    """Districts by the names of the paper; other names are unchanged."""
    return np.array([names.get(label, str(label)) for label in labels])


@dataclass(frozen=True)
class Source:
    """A file of listings, and the functions that read its inputs, rents and districts.

    city : its name in the paper's table.
    """

    file: str
    city: str
    read: Callable[[Columns], tuple[dict[str, Array], Array, NDArray[Any]]]


SOURCES = {
    "Beijing": Source("rent/beijing_danke_rent.parquet", "Beijing", _beijing),
    "Shanghai": Source("rent/shanghai_lianjia_2020.parquet", "Shanghai", _shanghai_2020),
    "Shanghai 2019": Source(
        "rent/shanghai_lianjia_2019_amenities.parquet", "Shanghai", _shanghai_2019
    ),
}
"""Key "city" of a cell -> source of its listings."""


def load(city: str) -> Companies:
    """Listings of a city, cleaned."""
    return _load(city, data_folder())


@cache
def _load(city: str, folder: Path) -> Companies:
    source = SOURCES[city]
    reason = absent(folder, source.file)
    if reason:
        raise InvalidInputError(f"The rents of {city} are missing: {reason}.")
    columns = read_columns(folder / source.file)
    return cleaned(*source.read(columns), first_copies(columns))


def first_copies(columns: Columns) -> NDArray[np.bool_]:
    """Mark the first of rows that are equal in every column: (n,)."""
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    first = {row: i for i, row in reversed(list(enumerate(rows)))}
    return np.array([first[row] == i for i, row in enumerate(rows)])


def cleaned(
    inputs: Mapping[str, Array], rent: Array, district: NDArray[Any], kept: NDArray[np.bool_]
) -> Companies:
    """Remove incomplete rows, rents above the 99th percentile, and small districts."""
    X = np.column_stack([np.asarray(values, dtype=float) for values in inputs.values()])
    rent = np.asarray(rent, dtype=float)
    kept = kept & complete(X, rent)
    kept &= rent <= np.quantile(rent[kept], KEPT_QUANTILE)
    names, counts = np.unique(district[kept], return_counts=True)
    kept &= np.isin(district, names[counts >= SMALLEST_DISTRICT])
    return Companies(tuple(inputs), X[kept], np.log(rent[kept]), district[kept])


def district_table() -> str:
    """Table 4 of the paper next to the number of listings here, in Markdown."""
    here = {city: load(city).counts() for city in SOURCES}
    published = {
        (f.keys["city"], f.keys["district"]): f.text
        for f in load_published()
        if f.table == "Table 4"
    }
    places = list(published)
    places += [(s.city, name) for city, s in SOURCES.items() for name in here[city]]
    lines = ["| city | district | published | here | here, 2019 file |", "|---|---|---|---|---|"]
    for city, name in dict.fromkeys(places):
        later = here["Shanghai 2019"] if city == "Shanghai" else {}
        figures = [published.get((city, name), "")]
        figures += [str(counts.get(name, "")) for counts in (here[city], later)]
        lines.append(f"| {city} | {name} | {' | '.join(figures)} |")
    return "\n".join(lines)
