"""Figure 1: two companies, each right on its own half of x^3, and their local average."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from localma.demo import Example, motivating_example
from localma.demo import draw as draw_example
from studies.findings import Finding, Results
from studies.harness import Cell, Keys, Metrics, Study, Table

COMPANIES = ("Company 1", "Company 2")
METHODS = (*COMPANIES, "equal", "global", "local")
CELL = Cell({"n": 200}, METHODS, replicates=100)
OWN_HALF = {"Company 1": (-2.0, -0.5), "Company 2": (0.5, 2.0)}


def run(keys: Keys, seed: np.random.SeedSequence, methods: Sequence[str]) -> Metrics:
    """MSE against x^3 on [-2, 2]; for local weights also each company's weight on its own half."""
    example = motivating_example(int(keys["n"]), int(seed.generate_state(1)[0]))
    errors = example.errors()
    metrics = {f"{method}:mse": errors[method] for method in methods}
    if "local" in methods:
        metrics |= {f"local:weight {name}": own_weight(example, name) for name in COMPANIES}
    return metrics


def own_weight(example: Example, company: str) -> float:
    """Mean local weight of a company over the half on which it collected its data."""
    low, high = OWN_HALF[company]
    x = example.grid[:, 0]
    weights = example.mixtures["local"].predict_weights(example.grid)
    return float(weights[(low <= x) & (x <= high), COMPANIES.index(company)].mean())


def _mse(results: Results, method: str) -> float:
    return results.mean(method, "mse", n=200)


def draw(_: Results, folder: Path) -> list[Path]:
    """Figure 1 a and b: replicate 0."""
    seed = int(STUDY.seed(CELL.keys, 0).generate_state(1)[0])
    return draw_example(motivating_example(200, seed), folder / "motivating_example")


STUDY = Study(
    name="motivating_example",
    title="The motivating example: x^3, two linear models",
    cells=(CELL,),
    run=run,
    tables=(
        Table("MSE against x^3 on [-2, 2]", "mse", ("n",), METHODS),
        *(
            Table(f"Mean local weight of {name} on its own half", f"weight {name}", ("n",), METHODS)
            for name in COMPANIES
        ),
    ),
    findings=(
        Finding(
            "Local weights follow the truth: less than a tenth of the MSE of equal weights",
            "Section 1, Figure 1a",
            lambda results: _mse(results, "local") < 0.1 * _mse(results, "equal"),
        ),
        Finding(
            "Equal weights are as good as any constant weights (within 5 % of the global ones)",
            "Section 1",
            lambda results: abs(_mse(results, "global") / _mse(results, "equal") - 1) < 0.05,
        ),
        Finding(
            "Each company has most of the weight on its own half",
            "Section 1, Figure 1b",
            lambda results: all(
                results.mean("local", f"weight {name}", n=200) > 0.5 for name in COMPANIES
            ),
        ),
    ),
    figures={"motivating_example": draw},
)
