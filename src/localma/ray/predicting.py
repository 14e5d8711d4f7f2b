"""Predictions of a model or of a pool for Parquet files, on a Ray cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from localma._optional import optional
from localma._types import Json
from localma.candidates import Pool, recipe_beside
from localma.candidates.conversion import Models
from localma.candidates.outputs import Task
from localma.errors import InvalidInputError
from localma.estimators.predictions import pool_of
from localma.gates.recipes import describe_gate
from localma.model_file import Model
from localma.production.options import AnswerOptions, Options
from localma.ray.job import BLOCK_ROWS, Paths, list_blocks, list_files
from localma.ray.running import Finished, Workers, WorkersOf, make_stages, run_job
from localma.ray.work import Averaging, Combining, Job, Source, bytes_per_row
from localma.tables.files import open_table
from localma.tables.roles import check_column

PathLike: TypeAlias = "str | os.PathLike[str]"
WHOLE = Workers()


def predict(
    model: Model | PathLike,
    dataset: Paths,
    out: PathLike,
    *,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    workers: WorkersOf = WHOLE,
    interval: float | None = None,
    trust: bool = False,
    address: str | None = None,
    block_rows: int = BLOCK_ROWS,
    progress: bool | None = None,
    **options: Unpack[AnswerOptions],
) -> Finished:
    """Predict Parquet files with a model, on a Ray cluster.

    Each block of rows becomes one Parquet file in `out`, written whole. A run that was stopped
    continues: blocks whose file exists are not computed again. All nodes must reach the files and
    `out` by the same paths.

    Parameters
    ----------
    model : model, str or path
        A fitted model, or the model file, which every process reads once.
    dataset : path or list of paths
        Parquet files, or folders of Parquet files.
    out : str or path
        The folder for the results.
    columns : list of str, optional
        The inputs. By default those of the fit; for a model that was fitted on arrays, all columns
        that are not in `keep`.
    keep : list of str
        Columns to copy, such as an id.
    workers : Workers, or dict of str to Workers
        Processes that hold the whole model, or processes for each candidate by name. In a dict,
        candidates that are left out have one process, and one more process writes.
    interval : float, optional
        Level of intervals or sets, as in `localma predict --interval`.
    trust : bool
        Whether to follow recipes of a model file that run code, or open files or addresses.
    address : str, optional
        Address of the cluster, "auto" for the one that runs on this machine. By default the
        variable RAY_ADDRESS; without it, Ray is started on this machine for this job.
    block_rows : int
        Row groups are joined to blocks of at most this size.
    progress : bool, optional
        As in `localma.progress.bar`.
    **options
        Options of `LocalMARegressor.answer`. Circuit breakers are off by default, so that results
        do not depend on the order of the blocks. If `missing` is "error", the first failure stops
        the job. Otherwise blocks that fail do not stop the others.

    Returns
    -------
    Finished
        Counts of rows, blocks and failures.

    Examples
    --------
    >>> from localma.ray import predict
    >>> finished = predict("rent.localma", "new/", "scored/", address="auto")  # doctest: +SKIP
    """
    checked = Options.of({"breaker": None, **options})
    source = Source(checked, level=interval, trust=trust, **_held(model))
    combining = source.make()
    assert isinstance(combining, Averaging)
    if interval is not None and not isinstance(workers, Workers):
        raise InvalidInputError(
            "interval needs all candidates in one process; received workers for each candidate."
        )
    fitted = [str(name) for name in getattr(combining.model, "feature_names_in_", [])]
    about = {**_about_model(model), "options": _described(checked), "interval": interval}
    given = columns if columns is not None else fitted or None
    return _run(
        source, combining, dataset, out, given, keep, workers, about, block_rows, address, progress
    )


def predict_pool(
    pool: Pool | Models | PathLike,
    dataset: Paths,
    out: PathLike,
    *,
    task: Task = "regression",
    n_outputs: int = 1,
    columns: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    workers: WorkersOf = WHOLE,
    as_arrays: bool = False,
    trust: bool = False,
    address: str | None = None,
    block_rows: int = BLOCK_ROWS,
    progress: bool | None = None,
    **options: Unpack[AnswerOptions],
) -> Finished:
    """Compute the predictions of all candidates for Parquet files, on a Ray cluster.

    The files in `out` have a column for each candidate, or one for each of its outputs or classes:
    predictions of a labelled sample, for a fit.

    Parameters
    ----------
    pool : Pool, dict, list, str or path
        The candidates, or a pool file as in `localma fit --models`.
    dataset : path or list of paths
        Parquet files, or folders of Parquet files.
    out : str or path
        The folder for the results.
    task : {"regression", "classification"}
        The task.
    n_outputs : int, default=1
        Number of outputs of a regression.
    columns : list of str, optional
        The inputs. By default all columns that are not in `keep`.
    keep : list of str
        Columns to copy, such as the target.
    workers : Workers, or dict of str to Workers
        As in `predict`.
    as_arrays : bool
        Whether candidates take arrays instead of Arrow tables.
    trust : bool
        Whether a pool file may name functions, files and addresses.
    address : str, optional
        As in `predict`.
    block_rows : int
        As in `predict`.
    progress : bool, optional
        As in `localma.progress.bar`.
    **options
        The options `missing`, `timeout` and `retries` of `LocalMARegressor.answer`.

    Returns
    -------
    Finished
        Counts of rows, blocks and failures.

    Examples
    --------
    >>> from localma.ray import Workers, predict_pool
    >>> finished = predict_pool(  # doctest: +SKIP
    ...     "pool.toml", "images/", "predictions/", trust=True,
    ...     workers={"large": Workers(4, gpus=1.0, batch_rows=512)},
    ... )
    """
    allowed = {"missing", "timeout", "retries", "breaker"}
    if unknown := set(options) - allowed:
        raise InvalidInputError(
            f"A pool has no gate, so predict_pool takes no {', '.join(sorted(unknown))}. Use "
            "predict with a fitted model."
        )
    checked = Options.of({"breaker": None, **options})
    if isinstance(pool, str | os.PathLike):
        held = _held(pool)
    else:
        held = _held(pool if isinstance(pool, Pool) else Pool(pool, task=task))
    source = Source(
        checked, trust=trust, task=task, n_outputs=n_outputs, as_frame=not as_arrays, **held
    )
    combining = source.make()
    about = {"pool": _about_pool(combining), "options": _described(checked), "task": task}
    return _run(
        source, combining, dataset, out, columns, keep, workers, about, block_rows, address,
        progress,
    )  # fmt: skip


def _run(
    source: Source,
    combining: Combining,
    dataset: Paths,
    out: PathLike,
    columns: Sequence[str] | None,
    keep: Sequence[str],
    workers: WorkersOf,
    about: dict[str, Json],
    block_rows: int,
    address: str | None,
    progress: bool | None,
) -> Finished:
    if find_spec("ray") is None:  # imported later, because it reads settings at its import
        optional("ray", extra="ray")
    files = list_files(dataset)
    names = open_table(files[0]).names
    inputs = [name for name in names if name not in keep] if columns is None else list(columns)
    for role, listed in (("columns", inputs), ("keep", keep)):
        for name in listed:
            check_column(role, name, names, files[0].name)
    stages = make_stages(workers, _asked_alone(combining))
    batch_rows = stages[0].workers.batch_rows
    blocks = tuple(list_blocks(files, block_rows))
    folder = str(Path(out).absolute())
    job = Job(source, folder, blocks, tuple(inputs), tuple(keep))
    about = {**about, "columns": [*inputs], "keep": [*keep], "batch_rows": batch_rows}
    return run_job(
        job, stages, about, row_bytes=bytes_per_row(combining), stops=combining.is_strict,
        address=address, progress=progress,
    )  # fmt: skip


def _asked_alone(combining: Combining) -> list[str]:
    """Names of the candidates that do not take the predictions of others."""
    pool = pool_of(combining.model) if isinstance(combining, Averaging) else combining.pool  # type: ignore[attr-defined]
    return [name for name in combining.names if name not in pool.stacked_names]


def _held(found: Any) -> dict[str, Any]:
    if isinstance(found, str | os.PathLike):
        return {"path": str(Path(found).absolute())}
    return {"held": found}


def _described(options: Options) -> Json:
    return json.loads(json.dumps(asdict(options), default=str))


def _about_model(model: Model | PathLike) -> dict[str, Json]:
    """What identifies a model: its file, or its numbers and the recipes of its candidates."""
    if isinstance(model, str | os.PathLike):
        return {"model": sha256(Path(model).read_bytes()).hexdigest()}
    digest = sha256(json.dumps(describe_gate(model.gate_, Path()), default=str).encode())
    for _, array in sorted(model.gate_.arrays().items()):
        digest.update(array.tobytes())
    digest.update(model.global_weights_.tobytes())
    if model.pool_ is not None:
        digest.update(json.dumps(_recipes(model.pool_)).encode())
    return {"model": digest.hexdigest()}


def _about_pool(combining: Combining) -> Json:
    return _recipes(combining.pool)  # type: ignore[attr-defined]


def _recipes(pool: Pool) -> dict[str, Json]:
    """Recipes by name; None for a candidate that exists only in memory."""
    recipes = {
        name: recipe_beside(candidate, Path())
        for name, candidate in zip(pool.names, pool.candidates, strict=True)
    }
    return {name: None if recipe is None else recipe.to_json() for name, recipe in recipes.items()}
