"""Models in MLflow: saved without pickle, logged with their evidence, served by its server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import localma
from localma._optional import optional
from localma._types import AnyArray
from localma.candidates import Candidate, Pool
from localma.candidates.files.base import FromFile, ModelFile
from localma.candidates.outputs import Table
from localma.errors import InvalidInputError, UntrustedFileError, unknown_name
from localma.estimators.predictions import pool_of
from localma.imports import modules_beside
from localma.inspection import Summary
from localma.model_file import load
from localma.report import write as write_report
from localma.serving.schema import Model

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

FILE, DATA, FOLDER = "model.localma", "data", "candidates"
TRUST = "LOCALMA_TRUST"
"""Environment variable that allows candidates to run code, and to open files and addresses."""
OUTPUTS = ("predict", "probabilities", "weights", "support")
PACKAGE = "localma.serving.mlflow"


def save_model(
    model: Model,
    path: str | os.PathLike[str],
    *,
    input_example: Table | None = None,
    **options: Any,
) -> None:
    """Save a fitted model as a folder of MLflow, without pickle.

    The folder has the ``.localma`` file and copies of the files of its candidates. Candidates in
    memory cannot be saved; write them to files, or make them importable functions.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    path : str or path
        A folder that does not exist yet.
    input_example : array or data frame, optional
        Some rows, from which the signature is inferred. They are stored.
    **options
        Further options of ``mlflow.pyfunc.save_model``, such as `signature` and `metadata`.

    Examples
    --------
    >>> save_model(model, "rent", input_example=X[:5])  # doctest: +SKIP
    """
    pyfunc = optional("mlflow.pyfunc", extra=None)
    with TemporaryDirectory() as folder:
        pyfunc.save_model(path=os.fspath(path), **_flavour(model, folder, input_example, options))


def log_model(
    model: Model,
    name: str = "model",
    *,
    input_example: Table | None = None,
    summary: Summary | None = None,
    **options: Any,
) -> ModelInfo:
    """Log a fitted model with its evidence to the active run of MLflow.

    The verdict becomes a tag, and the locality gain with its standard error metrics of the run.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        A fitted model.
    name : str
        Name of the model.
    input_example : array or data frame, optional
        Some rows, from which the signature is inferred. They are stored.
    summary : Summary, optional
        From `localma.inspection.summarize`. Its report is logged as ``report.html``.
    **options
        Further options of ``mlflow.pyfunc.log_model``, such as `registered_model_name`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Where the model is.

    Examples
    --------
    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     log_model(model, "rent", input_example=X[:5])
    """
    mlflow = optional("mlflow", extra=None)
    with TemporaryDirectory() as folder:
        flavour = _flavour(model, folder, input_example, options)
        info: ModelInfo = optional("mlflow.pyfunc", extra=None).log_model(name=name, **flavour)
        if summary is not None:
            write_report(summary, Path(folder) / "report.html")
            mlflow.log_artifact(str(Path(folder) / "report.html"))
    if hasattr(model, "verdict_"):
        gain = model.locality_gain_
        mlflow.set_tag("localma.verdict", model.verdict_)
        metrics = {"locality_gain": gain.value, "locality_gain_standard_error": gain.standard_error}
        mlflow.log_metrics({name: value for name, value in metrics.items() if np.isfinite(value)})
    return info


def load_model(uri: str, *, trust: bool = False) -> Model:
    """Load a model that `save_model` or `log_model` wrote, as an estimator of localma.

    Parameters
    ----------
    uri : str
        A folder, or an address of MLflow such as ``models:/rent/1``.
    trust : bool
        Whether to follow recipes that run code, and to open files and addresses.

    Returns
    -------
    LocalMARegressor or LocalMAClassifier
        The model.

    Examples
    --------
    >>> load_model("models:/rent/1").predict(X)  # doctest: +SKIP
    """
    artifacts = optional("mlflow.artifacts", extra=None)
    folder = Path(artifacts.download_artifacts(artifact_uri=os.fspath(uri)))
    flavours = optional("mlflow.models", extra=None).Model.load(str(folder)).flavors
    return _opened(folder / flavours["python_function"]["data"], trust)


def _flavour(
    model: Model, folder: str, input_example: Table | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of MLflow; the files are below a folder."""
    data = Path(folder) / DATA
    data.mkdir()
    _beside(model, data).save(data / FILE)
    given = dict(options)
    if input_example is not None and "signature" not in given:
        infer = optional("mlflow.models", extra=None).infer_signature
        given["signature"] = infer(
            input_example, np.asarray(model.predict(input_example)), {"output": "predict"}
        )
    if not {"pip_requirements", "conda_env"} & set(given):
        given["pip_requirements"] = [f"localma=={localma.__version__}"]
    return {
        "loader_module": PACKAGE,
        "data_path": str(data),
        "input_example": input_example,
        **given,
    }


def _beside(model: Model, folder: Path) -> Model:
    """The model with copies of the files of its candidates in a folder."""
    pool = pool_of(model)
    moved: dict[str, Candidate] = {}
    for name, candidate in zip(pool.names, pool.candidates, strict=True):
        plain = candidate.uncached()
        if isinstance(plain, FromFile):
            moved[name] = copy(plain)
            moved[name].file = ModelFile.of(_copied(plain, folder / FOLDER / str(len(moved))))  # type: ignore[attr-defined]
            continue
        if plain.recipe() is None:
            raise InvalidInputError(
                f"Candidate {name!r} is in memory and cannot be saved. Write it to a file, such as "
                "with skops or ONNX, or make it an importable function."
            )
        moved[name] = plain
    duplicate = copy(model)
    duplicate.pool_ = Pool(moved, task=model._task)
    return duplicate


def _copied(candidate: FromFile, folder: Path) -> Path:
    source = Path(candidate.source)
    folder.mkdir(parents=True)
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
    return target


def _opened(folder: Path, trust: bool) -> Model:
    try:
        with modules_beside(folder):
            return load(folder / FILE, trust=trust)
    except UntrustedFileError as error:
        raise InvalidInputError(
            f"{error.plain} If you trust the author of this model, set {TRUST}=1, or pass "
            "trust=True to localma.serving.mlflow.load_model."
        ) from error


class ScoringModel:
    """What MLflow calls: `predict` of a model in its own format.

    Parameters
    ----------
    model : LocalMARegressor or LocalMAClassifier
        The model.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, model_input: Table, params: Mapping[str, str] | None = None) -> AnyArray:
        """Predict rows.

        Parameters
        ----------
        model_input : data frame or array of shape (n, p)
            The rows.
        params : dict, optional
            ``{"output": "probabilities"}``, "weights" or "support" instead of "predict".

        Returns
        -------
        array of shape (n,) or (n, K)
            The output.
        """
        output = (params or {}).get("output", "predict")
        known: dict[str, Callable[[], AnyArray]] = {
            "predict": lambda: np.asarray(self.model.predict(rows)),
            "weights": lambda: self.model.predict_weights(rows),
            "support": lambda: self.model.predict_weights(rows, return_support=True)[1],
        }
        if hasattr(self.model, "predict_proba"):
            known["probabilities"] = lambda: self.model.predict_proba(rows)
        if output not in known:
            raise unknown_name("output", output, known)
        rows = model_input
        if not hasattr(self.model, "feature_names_in_"):
            rows = np.asarray(model_input, dtype=np.float64)
        return known[output]()


def _load_pyfunc(path: str) -> ScoringModel:
    """Load a model for MLflow, which calls this function by its name."""
    folder = Path(path)
    return ScoringModel(_opened(folder, os.environ.get(TRUST, "") == "1"))
