"""Pages whose numbers come from the stored results: the README, the results, the studies.

Such a part of a page is between two markers, as in `studies.tables.insert`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from localma.storage.whole_files import write_whole
from studies.findings import NotRunError, Results
from studies.harness import Study, load_study, study_names
from studies.markdown import table
from studies.pairs import RIGHT, Difference, difference, mean_over
from studies.published import find, load_published
from studies.rivals import RIVALS
from studies.rivals_results import (
    compared,
    is_clearly_behind,
    label,
    rivals_run,
    summary_table,
)
from studies.storage import Store
from studies.summary import results_of
from studies.tables import README, insert, render_stored
from studies.together import BEST, Together, render_together

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).parent / "figures"
DRAWN = "drawn.json"
"""File beside the figures, with the digest of the results that they were drawn from."""

Keys = Mapping[str, Any]
Stored = Mapping[str, Results]
"""Name of a study -> its results."""


@dataclass(frozen=True)
class Line:
    """A row of a table: what it is about, and the methods whose means it shows.

    words : text of the first column; study, metric, keys : where the means are; methods : title of
    a column -> method; labelled : number of labelled rows, as text; unlike : columns whose mean is
    never the best, such as controls; added : a method, and the one that it is compared with.
    """

    words: str
    study: str
    metric: str
    keys: Keys
    methods: Mapping[str, str]
    labelled: str = ""
    unlike: tuple[str, ...] = ()
    added: tuple[str, str] | None = None

    def cells(self, stored: Stored, columns: Sequence[str]) -> list[str]:
        """The mean of each column, the best of them in bold."""
        values = {column: self.values(stored, column) for column in columns}
        means = {column: found.mean() for column, found in values.items() if found is not None}
        if not means:
            raise NotRunError(f"No method of {self.keys} in {self.study} has been run.")
        compared = [mean for column, mean in means.items() if column not in self.unlike]
        best = (max if self._counts_successes else min)(compared)
        return [
            self._figure(means[column], is_best=means[column] == best) if column in means else ""
            for column in columns
        ]

    def values(self, stored: Stored, column: str) -> Any:
        """Values of the method of a column over the replicates, or None."""
        results, method = stored[self.study], self.methods.get(column)
        if method is None or not results.has_run(method, self.metric, **self.keys):
            return None
        return results.values(method, self.metric, **self.keys)

    def replicates(self, stored: Stored, columns: Sequence[str]) -> str:
        """Numbers of replicates, from the smallest to the largest."""
        found = [self.values(stored, column) for column in columns]
        counts = {len(values) for values in found if values is not None}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def difference_when_added(self, stored: Stored) -> str:
        """The paired difference of two methods: points of accuracy, or per cent of the risk."""
        if self.added is None:
            return ""
        one = difference(stored[self.study], self.metric, *self.added, **self.keys)
        if not self._counts_successes:
            return f"{_without_zeros(one.words(relative=True))} % ({one.replicates})"
        gain = Difference(-one.mean, one.error, one.risk, one.replicates)
        return f"{_without_zeros(gain.words(relative=False))} ({one.replicates})"

    @property
    def _counts_successes(self) -> bool:
        return self.metric.startswith(RIGHT)

    def _figure(self, mean: float, *, is_best: bool) -> str:
        text = f"{mean:.1f} %" if self._counts_successes else number(mean)
        return f"**{text}**" if is_best else text


def number(value: float) -> str:
    """Three digits without a leading zero, as the pages print a risk.

    >>> number(0.05312), number(14.53), number(-0.0021)
    ('.0531', '14.5', '-.00210')
    """
    return _without_zeros(f"{value:#.3g}".removesuffix("."))


def _without_zeros(text: str) -> str:
    return " ".join(
        word.replace("0.", ".", 1) if word.lstrip("+-").startswith("0.") else word
        for word in text.split(" ")
    )


# --- what the pages show -------------------------------------------------------------------------

CONSTANT = {"equal weights": "ewma", "fitted fixed weights": "gw"}
RENTS = CONSTANT | {"own model": "direct", "localma": "auto"}
SIMULATED = CONSTANT | {"localma": "auto"}
IMAGES = CONSTANT | {"own model": "direct", "localma": "features"}

README_COLUMNS = ("equal weights", "fitted fixed weights", "own model", "localma")
README_LINES = (
    Line(
        "rents in Beijing, one forest per district: squared error of the log rent",
        "rental", "mspe", {"city": "Beijing", "candidates": "forests", "rho": 0.5}, RENTS,
        "about 1,000",
    ),
    Line(
        "rents in Shanghai, one network per district: the same",
        "rental", "mspe", {"city": "Shanghai", "candidates": "networks", "rho": 0.5}, RENTS,
        "about 2,300",
    ),
    Line(
        "CIFAR-10, four networks that know four classes each, a gate on image features: accuracy",
        "cifar10", "accuracy", {"rho": 0.1}, IMAGES, "5,000",
    ),
    Line(
        "the same, on images that the networks have not seen", "cifar10", "accuracy",
        {"rho": 0.2, "heads": "half"}, IMAGES, "5,000",
    ),
    Line(
        "simulation where local weights are right: squared error",
        "simulations", "mse", {"setting": "S1", "n": 100}, SIMULATED, "100",
    ),
    Line(
        "simulation where fixed, unequal weights are right: the same",
        "simulations", "mse", {"setting": "S3", "n": 100}, SIMULATED, "100",
    ),
)  # fmt: skip

ON_DATA = {"EWMA": "ewma", "GW": "gw", "direct model": "direct"}
ON_TABLES = ON_DATA | {"LocalMA": "auto", "constants": "auto_constants"}
ON_TEXTS = ON_DATA | {"LocalMA": "frozen", "constants": "frozen_classes"}
ON_IMAGES = ON_DATA | {"LocalMA": "features", "constants": "features_classes"}
DATA_COLUMNS = ("EWMA", "GW", "direct model", "LocalMA", "constants")
OWN_ADDED = ("auto_own", "direct")


def _rent(words: str, city: str, kind: str) -> Line:
    keys = {"city": city, "candidates": kind, "rho": 0.5}
    return Line(words, "rental", "mspe", keys, ON_TABLES, unlike=("constants",), added=OWN_ADDED)


RENT_LINES = tuple(
    _rent(f"rents in {city}, one {kind[:-1]} per district: squared error", city, kind)
    for city in ("Beijing", "Shanghai")
    for kind in ("networks", "forests")
)
DATA_LINES = (
    Line(
        "toxic texts, Hindi and Hebrew", "toxicity", "accuracy", {"design": "paper", "rho": 0.5},
        ON_TEXTS, unlike=("constants",), added=OWN_ADDED,
    ),
    Line(
        "the same with texts in the candidates' languages (our design)",
        "toxicity", "accuracy", {"design": "pooled", "rho": 0.5},
        ON_TEXTS, unlike=("constants",), added=OWN_ADDED,
    ),
    Line(
        "CIFAR-10, rho = .1", "cifar10", "accuracy", {"rho": 0.1},
        ON_IMAGES, unlike=("constants",), added=("path_own", "direct"),
    ),
    *RENT_LINES,
)  # fmt: skip

SETTINGS = {
    "S1": "S1, local weights are right",
    "S2": "S2, equal weights are right",
    "S3": "S3, unequal fixed weights are right",
    "scenario 2": "scenario 2, no weights are right (none can go below 2.587)",
}
IN_SIMULATIONS = {'`gate="paper"`': "paper", '`gate="global"`': "gw", '`gate="auto"`': "auto"}


def data_of_readme(stored: Stored) -> str:
    """The table of the README."""
    head = [
        "data", "labelled rows", *README_COLUMNS[:2], "own model on these rows",
        "localma", "replicates",
    ]  # fmt: skip
    body = [
        [
            line.words,
            line.labelled,
            *line.cells(stored, README_COLUMNS),
            line.replicates(stored, README_COLUMNS),
        ]
        for line in README_LINES
    ]
    return table(head, body)


def simulations(stored: Stored) -> str:
    """The simulations beside the published figures."""
    body = []
    for setting, words in SETTINGS.items():
        for n in (100, 900):
            keys = {"setting": setting, "n": n}
            line = Line(words, "simulations", "mse", keys, IN_SIMULATIONS)
            printed = [_published(method, **keys) for method in ("LocalMA", "GW")]
            body.append(
                [
                    words if n == 100 else "",
                    str(n),
                    " / ".join(printed),
                    *line.cells(stored, tuple(IN_SIMULATIONS)),
                    line.replicates(stored, tuple(IN_SIMULATIONS)),
                ]
            )
    head = ["setting", "n", "LocalMA / GW, published", *IN_SIMULATIONS, "replicates"]
    return table(head, body)


def _published(method: str, **keys: Any) -> str:
    figure = find(load_published(), method=method, metric="mse", **keys)
    assert figure is not None  # the paper has all of them
    return _without_zeros(figure.text.partition(" (")[0])


def real_data(stored: Stored) -> str:
    """The evaluations on real data, with a control."""
    body = [
        [
            line.words,
            *line.cells(stored, DATA_COLUMNS),
            line.difference_when_added(stored),
            line.replicates(stored, DATA_COLUMNS),
        ]
        for line in DATA_LINES
    ]
    head = ["data, at rho = .5 unless stated otherwise", *DATA_COLUMNS]
    return table([*head, "direct model added (replicates)", "replicates"], body)


def controls(stored: Stored) -> str:
    """Rents: both gates on candidates, minus the same on two constants."""
    found = {
        method: [
            difference(stored["rental"], "mspe", method, f"{method}_constants", **line.keys)
            for line in RENT_LINES
        ]
        for method in ("auto", "paper")
    }
    body = [
        [
            line.words.partition(":")[0],
            *(f"{_without_zeros(found[m][k].words(relative=True))} %" for m in found),
            str(found["auto"][k].replicates),
        ]
        for k, line in enumerate(RENT_LINES)
    ]
    shares = [one.mean / one.risk for one in found["paper"]]
    words = (
        f"With the paper's gate, the candidates of rents are between "
        f"{_share(min(shares))} and {_share(max(shares))} than two constants."
    )
    head = ["candidates minus two constants, error", '`gate="auto"`', '`gate="paper"`']
    return f"{table([*head, 'replicates'], body)}\n\n{words}"


def _paragraph(text: str) -> str:
    return fill(text, 145, break_long_words=False, break_on_hyphens=False)


def _share(value: float) -> str:
    """A relative difference of errors in words.

    >>> _share(-0.021), _share(0.06)
    ('2.1 % better', '6.0 % worse')
    """
    return f"{100 * abs(value):.1f} % {'better' if value < 0 else 'worse'}"


def with_district(stored: Stored) -> str:
    """One paragraph on rents with the district as input."""
    words = []
    for method, name in (("auto", "LocalMA"), ("direct", "the direct model")):
        parts = []
        for city in ("Beijing", "Shanghai"):
            shares = [
                difference(stored["rental"], "mspe", f"{method}_place", method, **line.keys)
                for line in RENT_LINES
                if line.keys["city"] == city
            ]
            found = sorted(round(100 * (1 + one.mean / one.risk)) for one in shares)
            parts.append(f"{found[0]} to {found[-1]} % of its error in {city}")
        words.append(f"{name} has {' and '.join(parts)}")
    return _paragraph(f"If the district is an input, {'; '.join(words)}.")


def insurance(stored: Stored) -> str:
    """One paragraph on motor insurance."""
    results = stored["insurance"]
    found = [
        difference(results, "deviance", "auto_own", other, **keys)
        for method, metric, keys in results.entries()
        if (method, metric) == ("auto_own", "deviance")
        for other in ("gw", "ewma", "direct")
    ]
    if not found:
        raise NotRunError("No cell of insurance has been run.")
    behind = sum(not one.is_allowed for one in found)
    return _paragraph(
        f"In motor insurance, under Poisson, gamma and Tweedie deviance ({len(found) // 3} cells, "
        f'{min(one.replicates for one in found)} splits each), `gate="auto"` with own models is '
        f"behind global weights, equal weights or the direct model by more than 1 % and three "
        f"standard errors in {behind} of {len(found)} comparisons."
    )


def all_real_data(stored: Stored) -> str:
    """One paragraph on the mean over all cells."""
    together = Together.of([(load_study(name), results) for name, results in stored.items()], "own")
    best, gw, ewma = (_share(together.mean(name).mean) for name in (BEST, "gw", "ewma"))
    return _paragraph(
        f"[Over all {len(together.differences(BEST))} cells]"
        f"(../studies/README.md#real-data-all-studies-together) of the {len(together.by_study)} "
        f'studies, the error of `gate="auto"` with own models is {best} than that of the best '
        f"other method, which is chosen after the fact "
        f"({_share(together.mean_of_studies(BEST).mean)} if each study counts once). It is {gw} "
        f"than that of global weights and {ewma} than that of equal weights. In "
        f"{together.times_behind} of {len(together.against_constant)} comparisons it is behind "
        "these two by more than 1 % and three standard errors."
    )


def rivals(stored: Stored) -> str:
    """The summary of the comparison with other packages."""
    found = summary_table(stored["rivals"], RIVALS)
    if not found:
        raise NotRunError("No replicate of rivals has been run.")
    return found


def rivals_of_readme(stored: Stored) -> str:
    """Mean and median difference to each other package, with and without own models."""
    results, body = stored["rivals"], []
    for rival in rivals_run(results, RIVALS):
        own, default = (
            list(compared(results, method, rival).values()) for method in ("auto_own", "auto")
        )
        counts = f"{sum(one.is_clear for one in own)} / {sum(map(is_clearly_behind, own))}"
        body.append([label(rival), *_mean_and_median(own), *_mean_and_median(default), counts])
    if not body:
        raise NotRunError("No replicate of rivals has been run.")
    head = [
        "error minus that of", '`own="auto"`: mean, %', "median", "default: mean, %", "median",
        '`own="auto"` clearly ahead / behind',
    ]  # fmt: skip
    return table(head, body)


def _mean_and_median(found: Sequence[Difference]) -> list[str]:
    median = np.median([100.0 * one.mean / one.risk for one in found])
    return [mean_over(found, relative=True).words(relative=True), f"{median:+.1f}"]


PAGES: dict[Path, dict[str, Callable[[Stored], str]]] = {
    ROOT / "README.md": {"data": data_of_readme, "rivals": rivals_of_readme},
    ROOT / "docs" / "results.md": {
        "simulations": simulations,
        "real data": real_data,
        "controls": controls,
        "district": with_district,
        "insurance": insurance,
        "all real data": all_real_data,
        "rivals": rivals,
    },
}
"""Page -> the parts that come from results, other than those of the page of the studies."""


# --- writing -------------------------------------------------------------------------------------


def rendered(folder: Path) -> dict[Path, str]:
    """Text of every page, with the parts that come from the results of a folder."""
    studies = {name: load_study(name) for name in study_names()}
    stored = {name: results_of(Store(folder, name).load()) for name in studies}
    texts = {
        page: _with_sections(page, {name: _part(make, stored) for name, make in parts.items()})
        for page, parts in PAGES.items()
    }
    sections = {name: render_stored(s, Store(folder, name)) for name, s in studies.items()}
    sections["together"] = render_together([(s, stored[name]) for name, s in studies.items()])
    return texts | {README: _with_sections(README, sections)}


def _part(make: Callable[[Stored], str], stored: Stored) -> str:
    """The part of a page; empty as long as one of its figures has not been run."""
    try:
        return make(stored)
    except NotRunError:
        return ""


def _with_sections(page: Path, sections: Mapping[str, str]) -> str:
    text = page.read_text()
    for name, section in sections.items():
        if section:
            text = insert(text, name, section)
    return text


def write_pages(folder: Path) -> list[Path]:
    """Write all pages; return those that have changed."""
    changed = {p: text for p, text in rendered(folder).items() if text != p.read_text()}
    for page, text in changed.items():
        write_whole(page, text.encode())
    return list(changed)


def digest_of_results(folder: Path, study: Study) -> str:
    """Digest of the stored replicates of a study; empty if there are none."""
    file = Store(folder, study.name).compact_file
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest() if file.exists() else ""


def draw_figures(folder: Path) -> list[Path]:
    """Draw the figures of all studies that have results; return their files."""
    drawn: list[Path] = []
    digests = {}
    for study in map(load_study, study_names()):
        digest = digest_of_results(folder, study)
        for name, draw in study.figures.items() if digest else ():
            drawn += draw(results_of(Store(folder, study.name).load()), FIGURES)
            digests[name] = digest
    write_whole(FIGURES / DRAWN, (json.dumps(digests, indent=1) + "\n").encode())
    return drawn


def outdated_figures(folder: Path) -> list[str]:
    """Names of the figures whose results have changed since they were drawn."""
    file = FIGURES / DRAWN
    digests = json.loads(file.read_text()) if file.exists() else {}
    return [
        name
        for study in map(load_study, study_names())
        for name in study.figures
        if digests.get(name, "") != digest_of_results(folder, study)
    ]
