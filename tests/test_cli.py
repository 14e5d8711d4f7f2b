"""The command line: files in, files out, as a user calls it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

from typer.testing import CliRunner  # noqa: E402

from localma import Column, LocalMAClassifier, LocalMARegressor, load  # noqa: E402
from localma.cli import app  # noqa: E402
from localma.errors import InvalidInputError  # noqa: E402
from localma.formatting import printable  # noqa: E402
from localma.imports import import_object, modules_beside  # noqa: E402
from localma.production import tables as production_tables  # noqa: E402
from localma.tables import files  # noqa: E402
from localma.tables.files import read_table, writing  # noqa: E402
from localma.tables.sniffing import named_format  # noqa: E402


def make_table(n, seed=0):
    """Rents; north is right above 80 square metres, south below."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 150, n).round(1)
    district = rng.choice(["Xuhui", "Pudong", "Jingan"], n)
    rent = 50 * area + np.where(district == "Pudong", -800.0, 800.0) + rng.normal(0, 100, n)
    large = area > 80
    rooms = [None if k % 9 == 0 else int(k % 4) + 1 for k in range(n)]
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, n)
    return pa.table(
        {
            "id": [f"row {k}" for k in range(n)],
            "area": area,
            "rooms": rooms,
            "district": district,
            "listed": days,
            "pred_north": rent + np.where(large, 0.0, 1500.0) + rng.normal(0, 100, n),
            "pred_south": rent - np.where(large, 1500.0, 0.0) + rng.normal(0, 100, n),
            "rent": rent,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables and a fitted model, as the examples in the help have them."""
    folder = tmp_path_factory.mktemp("cli")
    table = make_table(500)
    csv.write_csv(table[:300], folder / "train.csv")
    csv.write_csv(table[300:], folder / "test.csv")
    csv.write_csv(table[300:].drop_columns(["rent"]), folder / "new.csv")
    here = Path.cwd()
    os.chdir(folder)
    try:
        call(
            "fit",
            "train.csv",
            "--target",
            "rent",
            "--predictions",
            "pred_*",
            "--out",
            "rent.localma",
        )
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def call(*arguments, code=0):
    """Call the program in this process, as `main` does but for the last resort."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output}{result.exception!r}")
    return result


def program(*arguments, **options):
    """Call the program as another process."""
    return subprocess.run(
        [sys.executable, "-m", "localma", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def test_fit_says_who_is_trusted_and_what_the_gate_sees(inside, tmp_path):
    out = tmp_path / "again.localma"
    words = call(
        "fit", "train.csv", "--target", "rent", "--predictions", "pred_*", "--out", out
    ).output
    assert "pred_north" in words
    assert "Use local weights." in words.replace("\n", " ")
    assert "does not see 'id': nearly all values are different" in words.replace("\n", " ")
    model = load(out)
    assert model.notes_["target"] == "rent"
    assert model.candidate_names_ == ("pred_north", "pred_south")
    seen = [column.name for column in model.gate_features_.transformer.columns_]
    assert seen == ["area", "rooms", "district", "listed"]


def test_fit_in_json(inside, tmp_path):
    out = tmp_path / "again.localma"
    arguments = ["--features", "area,district", "--gate", "global", "--json"]
    told = json.loads(
        call(
            "fit", "train.csv", "--target", "rent", "--predictions", "pred_*", "--out", out,
            *arguments,
        ).output
    )  # fmt: skip
    assert told["features"] == ["area", "district"]
    assert told["verdict"] is None
    assert sum(told["candidates"].values()) == pytest.approx(1)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow", ".jsonl"])
def test_predict_from_and_to_every_format(inside, tmp_path, suffix):
    table = read_table(inside / "new.csv")
    with writing(tmp_path / f"new{suffix}") as write:
        write(table)
    out = tmp_path / f"scored{suffix}"
    call("predict", "rent.localma", tmp_path / f"new{suffix}", "--out", out, "--keep", "id")
    scored = read_table(out)
    model = load("rent.localma")
    X = table.select(list(model.feature_names_in_))
    assert scored["prediction"].to_numpy() == pytest.approx(model.predict(X), rel=1e-6)
    weights = np.column_stack([scored[f"weight_{n}"].to_numpy() for n in model.candidate_names_])
    assert weights == pytest.approx(model.predict_weights(X), abs=1e-6)
    assert scored["id"].to_pylist() == table["id"].to_pylist()
    assert set(scored["asked"].to_pylist()) <= {"pred_north;pred_south", "pred_north", "pred_south"}
    assert scored["support"].to_numpy().max() <= 1


def test_predict_goes_through_a_file_in_parts(inside, tmp_path, monkeypatch):
    whole, parted = tmp_path / "whole.parquet", tmp_path / "parted.parquet"
    call("predict", "rent.localma", "new.csv", "--out", whole)
    monkeypatch.setattr(files, "BLOCK_BYTES", 2000)
    assert len(list(files.open_table(inside / "new.csv").blocks())) > 5
    call("predict", "rent.localma", "new.csv", "--out", parted)
    assert parquet.read_table(parted).equals(parquet.read_table(whole))


def test_predict_without_rows(inside, tmp_path):
    csv.write_csv(make_table(3)[:0], tmp_path / "none.csv")
    call("predict", "rent.localma", tmp_path / "none.csv", "--out", tmp_path / "out.parquet")
    empty = parquet.read_table(tmp_path / "out.parquet")
    assert empty.num_rows == 0
    assert "weight_pred_north" in empty.column_names


def test_categories_that_were_not_seen_and_missing_values(inside, tmp_path):
    table = make_table(3).set_column(3, "district", pa.array(["Xuhui", "nowhere", None]))
    csv.write_csv(table, tmp_path / "odd.csv")
    call("predict", "rent.localma", tmp_path / "odd.csv", "--out", tmp_path / "out.csv")
    assert np.isfinite(read_table(tmp_path / "out.csv")["prediction"].to_numpy()).all()


def test_truth_values_dates_and_ids_with_zeros_in_a_csv_file(tmp_path):
    table = make_table(200)
    zips = [f"{k % 5:02d}" for k in range(200)]
    table = table.append_column("lift", pa.array([k % 3 == 0 for k in range(200)]))
    table = table.append_column("zip", pa.array(zips))
    csv.write_csv(table, tmp_path / "t.csv")
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--out", tmp_path / "m.localma"]
    call("fit", tmp_path / "t.csv", *fit_to, "--gate", "global")
    out = tmp_path / "s.csv"
    call("predict", tmp_path / "m.localma", tmp_path / "t.csv", "--out", out, "--keep", "zip")
    assert [line.split(",")[0].strip('"') for line in out.read_text().splitlines()[1:]] == zips


def test_a_column_that_is_not_needed_may_change_its_mind(inside, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 2000)
    table = read_table(inside / "new.csv")
    notes = [None] * (table.num_rows - 1) + ["late words"]
    csv.write_csv(table.append_column("note", pa.array(notes, pa.string())), tmp_path / "t.csv")
    call("predict", "rent.localma", tmp_path / "t.csv", "--out", tmp_path / "s.csv")
    assert read_table(tmp_path / "s.csv").num_rows == table.num_rows


def test_semicolons_part_columns_too(inside, tmp_path):
    text = (inside / "new.csv").read_text().replace(",", ";")
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv").equals(read_table(inside / "new.csv"))


@pytest.mark.parametrize("in_parts", [False, True])
def test_numbers_with_a_decimal_comma(inside, tmp_path, in_parts):
    text = (inside / "new.csv").read_text().replace(",", ";").replace(".", ",")
    (tmp_path / "t.csv").write_text(text)
    path, expected = tmp_path / "t.csv", read_table(inside / "new.csv")
    blocks = [values for values, _ in files.open_table(path).blocks()]
    table = pa.concat_tables(blocks) if in_parts else read_table(path)
    assert table.equals(expected)
    assert "double" in {str(column.type) for column in table.columns}


def test_json_is_alone_on_standard_output(tmp_path):
    table = make_table(120)
    rents = pa.array([None if k < 8 else v for k, v in enumerate(table["rent"].to_pylist())])
    csv.write_csv(table.set_column(7, "rent", rents), tmp_path / "t.csv")
    done = program(
        "fit", tmp_path / "t.csv", "--target", "rent", "--predictions", "pred_*",
        "--out", tmp_path / "m.localma", "--json", "--gate", "global",
    )  # fmt: skip
    assert json.loads(done.stdout)["n_rows"] == 112
    assert "8 of 120 rows have no 'rent'" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,a,y\n1,2,3\n", "--predictions: t.csv has several columns named 'a'"),
        ("\xe9,y\n1,2\n".encode("latin-1"), "not written in UTF-8"),
    ],
)
def test_tables_that_cannot_be_read(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = call("fit", path, "--target", "y", "--predictions", "a", "--out", "x", code=1)
    assert words in str(result.exception)


def test_evaluate_tells_the_best(inside):
    words = call("evaluate", "rent.localma", "test.csv").output
    assert "equal weights" in words
    assert "A gate of the same kind over 2 constants" in words.replace("\n", " ")
    found = json.loads(
        call("evaluate", "rent.localma", "test.csv", "--no-control", "--json").output
    )
    losses = {entry["kind"]: entry["loss"]["value"] for entry in found["entries"]}
    assert losses["local"] < 0.5 * losses["global"]
    assert found["entries"][found["best"]]["kind"] == "local"


def test_weights_and_explain(inside):
    words = call("weights", "rent.localma", "test.csv").output.replace("\n", " ")
    assert "pred_north is trusted most where area > 80" in words
    told = json.loads(call("explain", "rent.localma", "test.csv", "--row", "17", "--json").output)
    contributions = [each["contribution"] for each in told["candidates"]]
    assert sum(contributions) == pytest.approx(told["prediction"])
    assert "Row 17" in call("explain", "rent.localma", "test.csv", "--row", "17").output


def test_report_is_written(inside, tmp_path):
    pytest.importorskip("jinja2")
    out = tmp_path / "report.html"
    call("report", "rent.localma", "test.csv", "--out", out, "--no-control")
    page = out.read_text(encoding="utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "pred_north" in page


def test_report_says_what_its_rows_say_beside_the_verdict(inside, tmp_path):
    pytest.importorskip("jinja2")
    out = tmp_path / "report.html"
    told = call("report", "rent.localma", "test.csv", "--out", out, "--no-control").stdout
    said = " ".join(told.split())
    assert said.startswith(load("rent.localma").verdict_)
    assert "On 200 rows of test.csv: mean squared error with local weights:" in said
    model = tmp_path / "m.localma"
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--gate", "local"]
    call("fit", "train.csv", *fit_to, "--out", model)
    unjudged = call("report", model, "test.csv", "--out", out, "--no-control").stdout
    assert unjudged.count("with local weights: ") == 1


def test_cache_is_shown_and_cleaned(tmp_path):
    assert "is empty" in " ".join(call("cache", "--folder", tmp_path).output.split())
    assert json.loads(call("cache", "--folder", tmp_path, "--json").output) == []
    assert "freed 0.0 KiB" in call("cache", "--folder", tmp_path, "--clean").output


@pytest.mark.parametrize(
    "command", ["fit", "predict", "evaluate", "weights", "explain", "report", "cache", "demo"]
)
def test_the_example_in_each_help_runs(inside, command):
    needed = {"report": "jinja2", "demo": "matplotlib"}.get(command)
    if needed:
        pytest.importorskip(needed)
    words = " ".join(call(command, "--help").output.split())
    example = re.search(r"Example: localma (.*?) (?=╭|Arguments|Options)", words).group(1)
    call(*[argument.strip("'") for argument in example.split()])


def test_the_commands_of_the_readme_run(inside):
    pytest.importorskip("jinja2")
    text = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    lines = re.findall(r"^localma (.*?)(?: +#.*)?$", text, flags=re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        call(*shlex.split(line))
    assert Path("report.html").stat().st_size > 10_000


# --- classification, weights, groups, time ---


def label_table(n, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, n)
    truth = 1 / (1 + np.exp(-4 * x))
    y = np.where(rng.uniform(size=n) < truth, "yes", "no")
    return pa.table(
        {
            "x": x,
            "p_a": np.where(x > 0, truth, 0.5),
            "p_b": np.where(x > 0, 0.5, truth),
            "exposure": rng.uniform(0.5, 1, n),
            "shop": rng.integers(0, 12, n),
            "day": np.arange(n),
            "answer": y,
        }
    )


def test_classification_by_the_target(tmp_path):
    parquet.write_table(label_table(300), tmp_path / "train.parquet")
    out = tmp_path / "answer.localma"
    options = ["--weight", "exposure", "--group", "shop", "--features", "x"]
    call(
        "fit", tmp_path / "train.parquet", "--target", "answer", "--predictions", "p_*",
        "--out", out, *options,
    )  # fmt: skip
    model = load(out)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.notes_["weight"] == "exposure"
    assert model.notes_["group"] == "shop"
    scored = tmp_path / "scored.jsonl"
    call("predict", out, tmp_path / "train.parquet", "--out", scored)
    first = json.loads(scored.read_text().splitlines()[0])
    assert first["p_no"] + first["p_yes"] == pytest.approx(1)
    assert first["prediction"] in ("no", "yes")


def test_common_names_of_losses(inside, tmp_path):
    out = tmp_path / "model.localma"
    known = ["--target", "rent", "--predictions", "pred_*", "--gate", "global", "--out", out]
    call("fit", "train.csv", *known, "--loss", "MAE")
    assert load(out).loss_.name == "absolute_error"
    table = label_table(100)
    codes = [int(answer == "yes") for answer in table["answer"].to_pylist()]
    table = table.set_column(6, "answer", pa.array(codes))
    parquet.write_table(table, tmp_path / "train.parquet")
    call(
        "fit", tmp_path / "train.parquet", "--target", "answer", "--predictions", "p_*",
        "--features", "x", "--gate", "global", "--loss", "log_loss", "--out", out,
    )  # fmt: skip
    assert load(out).classes_.tolist() == [0, 1]


def test_groups_of_the_fit_are_those_of_an_evaluation(tmp_path):
    train, out = tmp_path / "train.parquet", tmp_path / "answer.localma"
    parquet.write_table(label_table(300), train)
    call(
        "fit", train, "--target", "answer", "--predictions", "p_*", "--out", out,
        "--group", "shop", "--features", "x", "--gate", "global",
    )  # fmt: skip
    evaluation = ["evaluate", out, train, "--no-control"]
    known = json.loads(call(*evaluation, "--json").stdout)
    assert known["n_groups"] == 12
    assert "between 12 groups" in call(*evaluation).stdout
    # A row a group: hardly another standard error than that between rows.
    by_row = json.loads(call(*evaluation, "--group", "day", "--json").stdout)
    assert by_row["n_groups"] == 300
    refused = call(*evaluation, "--group", "shops", code=2)
    assert "did you mean 'shop'" in " ".join(refused.stderr.split())
    gaps = tmp_path / "gaps.csv"
    csv.write_csv(
        label_table(300).drop(["shop"]).append_column("shop", pa.array([None] * 300)), gaps
    )
    missing = call("evaluate", out, gaps, "--no-control", code=1)
    assert "300 rows have no value in 'shop'" in str(missing.exception)
    codes = tmp_path / "codes.csv"
    twins = pa.array(["01", "1"] * 150)
    csv.write_csv(label_table(300).drop(["shop"]).append_column("shop", twins), codes)
    told_apart = json.loads(call("evaluate", out, codes, "--no-control", "--json").stdout)
    assert told_apart["n_groups"] == 2
    alone = tmp_path / "alone.csv"
    csv.write_csv(
        label_table(300).drop(["shop"]).append_column("shop", pa.array(["a"] * 300)), alone
    )
    assert "standard errors between groups are not available" in " ".join(
        call("evaluate", out, alone).stdout.split()
    )
    without = tmp_path / "without.parquet"
    parquet.write_table(label_table(300).drop(["shop"]), without)
    told = call("evaluate", out, without, "--no-control", "--json")
    assert "this table has no column 'shop'" in " ".join(told.stderr.split())
    alone = json.loads(told.stdout)
    assert alone["n_groups"] is None
    errors = [part["entries"][0]["loss"]["standard_error"] for part in (by_row, alone)]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    call("report", out, train, "--no-control", "--out", tmp_path / "page.html")
    assert "at least that between 12 groups of rows" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (4, [], "4 rows cannot be split into 5 folds. Use --folds 4,"),
        (300, ["--folds", "20", "--group", "shop"], "12 groups cannot be split into 20 folds"),
        (300, ["--folds", "300", "--time", "day"], "300 times cannot be split into 300 folds"),
        (1, [], "Add more rows"),
    ],
)
def test_too_many_folds_are_refused_in_words_of_the_program(tmp_path, rows, options, words):
    train = tmp_path / "train.parquet"
    parquet.write_table(label_table(300).slice(0, rows), train)
    refused = call(
        "fit", train, "--target", "answer", "--predictions", "p_*", "--features", "x",
        "--out", tmp_path / "m.localma", *options, code=2,
    )  # fmt: skip
    assert words in " ".join(refused.stderr.replace("│", " ").split())


@pytest.mark.parametrize("codes", [("01", "02"), ("1", "2")])
def test_labels_with_leading_zeros_are_words(tmp_path, codes):
    table = label_table(200).select(["x", "p_a", "p_b"])
    answers = [codes[answer == "yes"] for answer in label_table(200)["answer"].to_pylist()]
    text = "\ufeff" + "\n".join(
        ["x,p_a,p_b,answer"]
        + [
            f"{row['x']},{row['p_a']},{row['p_b']},{code}"
            for row, code in zip(table.to_pylist(), answers, strict=True)
        ]
    )
    path, out = tmp_path / "train.csv", tmp_path / "m.localma"
    path.write_text(text, encoding="utf-8")
    fit = ["fit", path, "--target", "answer", "--predictions", "p_*", "--gate", "global"]
    if codes[0].startswith("0"):
        call(*fit, "--out", out)
        assert isinstance(load(out), LocalMAClassifier)
        assert load(out).classes_.tolist() == ["01", "02"]
        call("evaluate", out, path)
    call(*fit, "--out", out, "--task", "regression")
    assert isinstance(load(out), LocalMARegressor)


def test_time_judges_on_later_rows(tmp_path):
    table = label_table(300)
    parquet.write_table(
        table.take(np.random.default_rng(0).permutation(300)), tmp_path / "t.parquet"
    )
    out = tmp_path / "answer.localma"
    told = json.loads(
        call(
            "fit", tmp_path / "t.parquet", "--target", "answer", "--predictions", "p_*", "--time",
            "day", "--features", "x", "--out", out, "--json",
        ).output
    )  # fmt: skip
    assert told["features"] == ["x"]
    assert told["gain"]["standard_error"] > 0


def test_a_column_per_class(tmp_path):
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(3), size=(2, 200))
    labels = np.array(["a", "b", "c"])
    table = {
        f"{model}_{label}": chances[m, :, k]
        for m, model in enumerate(("north", "south"))
        for k, label in enumerate(labels)
    }
    y = labels[[rng.choice(3, p=p) for p in chances[0]]]
    csv.write_csv(pa.table({**table, "x": rng.normal(size=200), "y": y}), tmp_path / "t.csv")
    call(
        "fit", tmp_path / "t.csv", "--target", "y", "--predictions", "north_*", "--predictions",
        "south_*", "--out", tmp_path / "m.localma", "--gate", "global",
    )  # fmt: skip
    model = load(tmp_path / "m.localma")
    assert model.candidate_names_ == ("north", "south")
    assert model.global_weights_[0] > 0.6


# --- models that run ---


def test_models_of_a_toml_file(inside, tmp_path):
    pytest.importorskip("onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)).astype(np.float32)
    onnx = skl2onnx.to_onnx(LinearRegression().fit(X, X[:, 0]), X[:1])
    (tmp_path / "first.onnx").write_bytes(onnx.SerializeToString())
    (tmp_path / "pool.toml").write_text(
        '[first]\nfile = "first.onnx"\ninputs = ["a", "b"]\n[guess]\ncolumn = "g"\n'
    )
    table = pa.table(
        {"a": X[:, 0], "b": X[:, 1], "g": X[:, 1], "y": np.where(X[:, 1] > 0, X[:, 0], X[:, 1])}
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    out = tmp_path / "m.localma"
    call(
        "fit", tmp_path / "t.parquet", "--target", "y", "--models", tmp_path / "pool.toml",
        "--out", out, "--features", "a,b", "--trust",
    )  # fmt: skip
    refused = call("predict", out, tmp_path / "t.parquet", "--out", tmp_path / "s.csv", code=1)
    assert "--trust" in str(refused.exception)
    call("predict", out, tmp_path / "t.parquet", "--out", tmp_path / "s.csv", "--trust")
    y = read_table(tmp_path / "s.csv")["prediction"].to_numpy()
    assert np.corrcoef(y, table["y"].to_numpy())[0, 1] > 0.9


def test_a_function_in_a_file_beside_the_pool(folder, tmp_path):
    (tmp_path / "vendor_of_rents.py").write_text(
        "import numpy as np\ndef north(table):\n    return 50.0 * np.asarray(table['area'])\n"
    )
    (tmp_path / "pool.toml").write_text(
        '[vendor]\nimport = "vendor_of_rents:north"\n[south]\ncolumn = "pred_south"\n'
    )
    fitted = program(
        "fit", folder / "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml",
        "--features", "area", "--out", tmp_path / "m.localma", "--trust", cwd=folder,
    )  # fmt: skip
    assert fitted.returncode == 0, fitted.stderr
    scored = program(
        "predict", tmp_path / "m.localma", folder / "new.csv", "--out", tmp_path / "s.csv",
        "--trust", cwd=folder,
    )  # fmt: skip
    assert scored.returncode == 0, scored.stderr
    assert "weight_vendor" in read_table(tmp_path / "s.csv").column_names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\ncolumn = "x"\n[b]\n', "must have one of"),
        ("a = 1\n", "one table per candidate"),
        ("[a\n", "must be a TOML file"),
        ('[a]\ncolumn = "g"\nnonsense = 1\n', "nonsense"),
    ],
)
def test_pools_that_are_wrong(inside, tmp_path, text, words):
    (tmp_path / "pool.toml").write_text(text)
    told = call(
        "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml", "--out", "x",
        code=2,
    )  # fmt: skip
    assert words in " ".join(told.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\nfile = "x.onnx"\ncolumn = "y"\n', "must have one of"),
        ('[a]\nfile = "model.pkl"\n', "pickled code"),
    ],
)
def test_trusted_pools_that_are_wrong(inside, tmp_path, text, words):
    (tmp_path / "pool.toml").write_text(text)
    told = call(
        "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml", "--out", "x",
        "--trust", code=2,
    )  # fmt: skip
    assert words in " ".join(told.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ('import = "os:getcwd"', "(import = 'os:getcwd')"),
        ('url = "http://127.0.0.1:9/s3cret?k=s3cret"', "(url)"),
        ('url = "http://127.0.0.1:9/x"\ncolumn = "pred_north"', "(url)"),
        ('file = "evil.pt2"', "(file = 'evil.pt2')"),
        ('file = "evil.onnx"', "(file = 'evil.onnx')"),
        ('file = "evil.skops"\ntrusted = ["os.system"]', "(file = 'evil.skops')"),
        ('file = "folder"', "(file = 'folder')"),
        ('file = "/etc/passwd"', "(file = '/etc/passwd')"),
        ('file = ["a", "b"]', "(file = ['a', 'b'])"),
    ],
)
def test_all_but_columns_of_a_pool_need_trust(inside, tmp_path, text, entry):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    (tmp_path / "pool.toml").write_text(f'[north]\ncolumn = "pred_north"\n["evil"]\n{text}\n')
    with opened_below(tmp_path) as opened:
        told = call(
            "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml",
            "--out", "x", code=2,
        )  # fmt: skip
    words = " ".join(told.output.replace("│", " ").split())
    assert f"'evil' {entry}" in words
    assert "Add --trust if you trust the authors of pool.toml." in words
    assert "s3cret" not in words
    assert set(opened) == {str(tmp_path / "pool.toml")}


@contextmanager
def opened_below(folder):
    """Record what this process opens below a folder; connections, too."""
    opened, recording = [], True

    def record(event, arguments):
        wanted = event == "socket.connect" or (event == "open" and str(folder) in str(arguments[0]))
        if recording and wanted:
            opened.append(str(arguments[0]))

    sys.addaudithook(record)  # it cannot be taken away again
    yield opened
    recording = False


INTRUDER = "from pathlib import Path\nPath({marker!r}).touch()\nraise ImportError('intruder')\n"


def test_trust_does_not_let_a_folder_replace_what_is_installed(folder, tmp_path):
    """A numba.py beside pool and model is never imported; the function that is named is."""
    for name in ("numba", "rich", "pyarrow", "scipy", "sitecustomize", "cupy", "pandas"):
        (tmp_path / f"{name}.py").write_text(INTRUDER.format(marker=str(tmp_path / "ran")))
    (tmp_path / "of_rents.py").write_text(
        "import numpy as np, by_area\n"
        "def north(table):\n    return by_area.FACTOR * np.asarray(table['area'])\n"
    )
    (tmp_path / "by_area.py").write_text("FACTOR = 50.0\n")
    (tmp_path / "pool.toml").write_text(
        '[vendor]\nimport = "of_rents:north"\n[south]\ncolumn = "pred_south"\n'
    )
    model, scored = tmp_path / "m.localma", tmp_path / "s.csv"
    fit_to = ["--target", "rent", "--models", tmp_path / "pool.toml", "--trust"]
    fitted = program("fit", folder / "train.csv", *fit_to, "--out", model, cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    done = program("predict", model, folder / "new.csv", "--out", scored, "--trust", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_modules_beside_are_found_for_one_import_only(tmp_path):
    (tmp_path / "beside_a_pool.py").write_text("import sys\nsearched = list(sys.path)\n")
    before = list(sys.path)
    with modules_beside(tmp_path):
        assert sys.path == before
        assert import_object("beside_a_pool:searched") == [*before, str(tmp_path)]
        assert sys.path == before
        with pytest.raises(InvalidInputError, match="cannot be imported here"):
            import_object("nowhere_to_be_found:name")
    assert sys.path == before


# --- what a terminal would obey ---

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\x7f"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Tables whose columns, categories and classes hold escape sequences, and a model of them."""
    folder = tmp_path_factory.mktemp("hostile")
    table = make_table(300)
    names = {name: f"{name}{EVIL}" for name in ("area", "district", "pred_north", "pred_south")}
    districts = pa.array([f"{EVIL}{value}" for value in table["district"].to_pylist()])
    numbers = table.rename_columns(names).set_column(3, names["district"], districts)
    parquet.write_table(numbers.drop_columns(["id"]), folder / "numbers.parquet")
    labels = pa.array(
        [f"high{EVIL}" if y > 4000 else f"low{EVIL}" for y in table["rent"].to_pylist()]
    )
    shares = {
        f"{name}{EVIL}_high{EVIL}": np.clip(table[f"pred_{name}"].to_numpy() / 9000, 0, 1)
        for name in ("north", "south")
    }
    classes = pa.table({"area": table["area"], "rent": labels, **shares})
    parquet.write_table(classes, folder / "classes.parquet")
    call(
        "fit", folder / "numbers.parquet", "--target", "rent", "--predictions", "pred_*",
        "--features", f"{names['area']},{names['district']}", "--out", folder / "numbers.localma",
    )  # fmt: skip
    call(
        "fit", folder / "classes.parquet", "--target", "rent", "--predictions", "*high*",
        "--gate", "global", "--out", folder / "classes.localma",
    )  # fmt: skip
    return folder


def assert_harmless(words):
    assert words
    assert printable(words, "\n") == words


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_no_escape_sequence_reaches_the_terminal(hostile, tmp_path, json_too):
    numbers, model = hostile / "numbers.parquet", hostile / "numbers.localma"
    fit_to = ["--target", "rent", "--gate", "global", "--out", tmp_path / "m.localma"]
    for arguments in (
        ["fit", numbers, *fit_to, "--predictions", "pred_*"],
        ["fit", hostile / "classes.parquet", *fit_to, "--predictions", "*high*"],
        ["predict", model, numbers, "--out", tmp_path / f"s{EVIL}.csv"],
        ["evaluate", model, numbers, "--no-control"],
        ["weights", model, numbers],
        ["explain", model, numbers, "--row", 3],
    ):
        done = call(*arguments, *json_too)
        assert_harmless(done.output)
        if json_too:
            json.loads(done.stdout)
    assert_harmless(call("fit", numbers, *fit_to, "--predictions", f"pred{EVIL}", code=2).output)


def test_no_escape_sequence_of_an_error_reaches_the_terminal(hostile, tmp_path):
    short = parquet.read_table(hostile / "numbers.parquet").drop_columns([f"area{EVIL}"])
    parquet.write_table(short, tmp_path / "short.parquet")
    model, scored = hostile / "numbers.localma", tmp_path / "s.csv"
    done = program("predict", model, tmp_path / "short.parquet", "--out", scored)
    assert done.returncode == 1
    assert_harmless(done.stderr)


SHOUTS = """
import sys, warnings, logging
from localma.cli import app
@app.command()
def shout():
    warnings.warn("column \\x1b[2J", stacklevel=1)
    logging.getLogger("localma").warning("candidate %s", "\\x9b2J")
    raise ZeroDivisionError("\\x1b[2J")
from localma.__main__ import main
sys.argv = ["localma", "shout"]
main()
"""


def test_warnings_log_and_unexpected_errors_are_escaped_too():
    done = subprocess.run(
        [sys.executable, "-c", SHOUTS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert r"column \x1b[2J" in done.stderr
    assert r"candidate \x9b2J" in done.stderr
    assert r"unexpected ZeroDivisionError: \x1b[2J" in done.stderr
    assert_harmless(done.stderr)


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "none.csv"], "does not exist"),
        (["fit", "train.csv", "--target", "rents"], "the table has no column 'rents'; did you"),
        (["fit", "train.csv", "--target", "rent", "--predictions", "p*q"], "no column 'p*q'"),
        (["fit", "train.csv", "--target", "rent", "--gate", "loca"], "--gate must be one of"),
        (["fit", "train.csv", "--target", "rent", "--loss", "squard"], "did you mean"),
        (["fit", "train.csv", "--target", "rent", "--loss", "mape"], "--loss: 'mape' cannot be"),
        (["fit", "train.csv", "--target", "rent", "--features", "arae"], "did you mean 'area'"),
        (["fit", "train.csv", "--target", "rent", "--features", "rent"], "neither a feature"),
        (["fit", "train.csv", "--target", "rent", "--predictions", "rent"], "nor a prediction"),
        (
            ["fit", "train.csv", "--target", "rent", "--predictions", "pred_*",
             "--predictions", "rent"],
            "nor a prediction",
        ),
        (["fit", "train.csv", "--target", "rent", "--task", "rank"], "--task: must be"),
        (["fit", "train.csv", "--target", "rent", "--features", "pred_north"], "does not see"),
        (["fit", "train.csv", "--target", "district", "--task", "regression"], "needs numbers"),
        (["fit", "train.csv", "--target", "rent", "--time", "id", "--group", "id"], "leave one"),
        (["fit", "train.csv", "--target", "rent", "--weight", "district"], "--weight needs"),
    ],
)  # fmt: skip
def test_wrong_calls_end_with_two(inside, arguments, words):
    arguments = list(arguments)
    if "--predictions" not in arguments:
        arguments += ["--predictions", "pred_*"]
    told = call(*arguments, "--out", "x.localma", code=2)
    assert words in " ".join(told.output.replace("│", " ").split())
    assert not Path("x.localma").exists()


@pytest.mark.parametrize("name", ["table.xls", "table", "table.parquet.gz"])
def test_names_of_tables(name):
    with pytest.raises(Exception, match="must end in"):
        named_format(Path(name))


def test_no_traceback_and_code_one(folder, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    done = program("predict", folder / "rent.localma", broken, "--out", tmp_path / "s.csv")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "broken.parquet cannot be read" in done.stderr
    assert os.listdir(tmp_path) == ["broken.parquet"]


def test_a_column_that_is_not_there(folder, tmp_path):
    csv.write_csv(make_table(5).drop_columns(["pred_south"]), tmp_path / "new.csv")
    done = program(
        "predict", folder / "rent.localma", tmp_path / "new.csv", "--out", "s.csv", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "localma: The table new.csv has no column 'pred_south'; did you mean" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "s.csv").exists()


def test_an_unexpected_error_is_a_sentence(folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import localma.model_file as p\n"
        "def load(*a, **k): raise ZeroDivisionError('by zero')\n"
        "p.load = load\n"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = program(
        "predict", folder / "rent.localma", folder / "new.csv", "--out", "s.csv",
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.returncode == 1
    assert "unexpected ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_half_written_file(folder, tmp_path, sent):
    big = tmp_path / "big.csv"
    csv.write_csv(pa.concat_tables([make_table(4000)] * 100), big)
    out = tmp_path / "scored.csv"
    process = subprocess.Popen(
        [sys.executable, "-m", "localma", "predict", folder / "rent.localma", big, "--out", out],
        stderr=subprocess.PIPE,
        text=True,
    )
    partial: list[Path] = []
    deadline = time.monotonic() + 180
    while not partial and process.poll() is None and time.monotonic() < deadline:
        partial = list(tmp_path.glob(".localma-*.part"))
        time.sleep(0.01)
    assert partial, "the work was over before it could be interrupted"
    process.send_signal(sent)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 128 + sent  # what shells expect of a program that was interrupted
    assert "Traceback" not in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.csv"]


def at_most_30_kilobytes_a_file():
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("name", ["scored.csv", "scored.parquet", "scored.arrow", "scored.jsonl"])
def test_a_full_disk_leaves_no_half_written_file(folder, tmp_path, name):
    csv.write_csv(make_table(4000), tmp_path / "big.csv")
    out = tmp_path / "out"
    out.mkdir()
    done = program(
        "predict", folder / "rent.localma", tmp_path / "big.csv", "--out", out / name,
        preexec_fn=at_most_30_kilobytes_a_file,
    )  # fmt: skip
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert list(out.iterdir()) == []


# What a file lacks, or writes in its own way


def rewritten(inside, tmp_path, change, name="t.csv"):
    """The table of new rows, changed, in another file."""
    path = tmp_path / name
    with writing(path) as write:
        write(change(read_table(inside / "new.csv")))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("column", ["area", "pred_north"])
def test_a_column_that_the_file_lacks_is_named(inside, tmp_path, suffix, column):
    def renamed(table):
        return table.rename_columns([f"{n}_" if n == column else n for n in table.column_names])

    path = rewritten(inside, tmp_path, renamed, f"t{suffix}")
    result = call("predict", "rent.localma", path, "--out", tmp_path / "s.csv", code=1)
    hint = f"has no column '{column}'; did you mean '{column}_'"
    assert f"The table {path.name} {hint}" in str(result.exception)
    result = call("weights", "rent.localma", path, code=1)
    assert f"The table {path.name} {hint}" in str(result.exception)


def test_numbers_that_name_rows_and_groups_in_json_lines(inside, tmp_path):
    table = read_table(inside / "train.csv").append_column("shop", pa.array(np.arange(300) % 20))
    with writing(tmp_path / "t.jsonl") as write:
        write(table)
    model, out = tmp_path / "m.localma", tmp_path / "s.csv"
    call(
        "fit", tmp_path / "t.jsonl", "--target", "rent", "--predictions", "pred_*", "--group",
        "shop", "--features", "area,district", "--out", model,
    )  # fmt: skip
    assert load(model).notes_["group"] == "shop"
    call("evaluate", model, tmp_path / "t.jsonl", "--no-control")
    call("predict", model, tmp_path / "t.jsonl", "--keep", "shop", "--out", out)
    assert read_table(out)["shop"].to_pylist() == table["shop"].to_pylist()


def with_commas(inside, table="new.csv"):
    return (inside / table).read_text().replace(",", ";").replace(".", ",")


def test_commas_in_numbers_are_seen_wherever_they_begin(inside, tmp_path):
    header, *lines = (inside / "train.csv").read_text().splitlines()
    lines = [line.replace(",", ";") for line in lines]
    place = header.replace('"', "").split(",").index("area")
    for k, line in enumerate(lines):
        fields = line.split(";")
        fields[place] = str(round(float(fields[place]))) if k < 150 else fields[place]
        lines[k] = ";".join(fields).replace(".", ",")
    (tmp_path / "t.csv").write_text("\n".join([header.replace(",", ";"), *lines]))
    table = read_table(tmp_path / "t.csv")
    kinds = {name: str(table[name].type) for name in ("area", "pred_north", "rent", "district")}
    assert kinds == {
        "area": "double",
        "pred_north": "double",
        "rent": "double",
        "district": "string",
    }


def test_points_and_a_column_with_commas(tmp_path):
    (tmp_path / "t.csv").write_text("x;code\n1.5;a,b\n2.5;1,2\n")
    table = read_table(tmp_path / "t.csv")
    assert table["x"].to_pylist() == [1.5, 2.5]
    assert table["code"].to_pylist() == ["a,b", "1,2"]


def test_a_kept_number_with_a_comma(inside, tmp_path):
    (tmp_path / "t.csv").write_text(with_commas(inside))
    out = tmp_path / "s.csv"
    call("predict", "rent.localma", tmp_path / "t.csv", "--keep", "area", "--out", out)
    call("predict", "rent.localma", "new.csv", "--keep", "area", "--out", tmp_path / "points.csv")
    scored, points = read_table(out), read_table(tmp_path / "points.csv")
    written = out.read_text().splitlines()[1].split('"')[1]
    assert written == str(points["area"][0].as_py()).replace(".", ",")
    assert scored["prediction"].to_numpy() == pytest.approx(points["prediction"].to_numpy())


@pytest.mark.parametrize("commas", [False, True])
@pytest.mark.parametrize("keep", [[], ["--keep", "area"]])
def test_a_bad_cell_is_named_with_its_column(inside, tmp_path, commas, keep):
    text = with_commas(inside) if commas else (inside / "new.csv").read_text()
    header, first, *lines = text.splitlines()
    sign = ";" if commas else ","
    fields = first.split(sign)
    fields[1] = "oops"
    (tmp_path / "t.csv").write_text("\n".join([header, sign.join(fields), *lines]))
    out = ["--out", tmp_path / "s.csv"]
    result = call("predict", "rent.localma", tmp_path / "t.csv", *keep, *out, code=1)
    assert "'oops' in column 'area' of t.csv, line 2, is not a number" in str(result.exception)
    assert "add --na 'oops'" in str(result.exception)


def test_exact_decimals(inside, tmp_path):
    table = read_table(inside / "train.csv")
    rents = table["rent"].cast(pa.decimal128(20, 8), safe=False)
    parquet.write_table(table.set_column(7, "rent", rents), tmp_path / "t.parquet")
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--gate", "global"]
    call("fit", tmp_path / "t.parquet", *fit_to, "--out", tmp_path / "m.localma")
    call("evaluate", tmp_path / "m.localma", tmp_path / "t.parquet", "--no-control")


def test_what_the_sample_has_not_is_said(inside, tmp_path):
    def strange(table):
        districts = ["Baoshan"] * 3 + table["district"].to_pylist()[3:]
        areas = [None] * 5 + table["area"].to_pylist()[5:]
        table = table.set_column(3, "district", pa.array(districts))
        return table.set_column(1, "area", pa.array(areas))

    path = rewritten(inside, tmp_path, strange)
    said = call("predict", "rent.localma", path, "--out", tmp_path / "s.csv").stderr
    assert "3 of 200 rows: 'district' is a category that was not in the labelled sample." in said
    assert "5 of 200 rows: 'area' is missing, and never was in the labelled sample" in said
    assert "sample" not in call("weights", "rent.localma", "test.csv").stderr


def unlike(table, rows):
    """The same table, the first rows of it far larger than any in the labelled sample."""
    areas = table["area"].to_pylist()
    larger = [area + 2000 if k < rows else area for k, area in enumerate(areas)]
    return table.set_column(1, "area", pa.array(larger))


UNLIKE = "88 of 200 rows are unlike the labelled sample: their weights are close to the global"


@pytest.mark.parametrize(
    "command",
    [["evaluate", "--no-control"], ["weights"], ["explain", "--row", "3"], ["report"]],
    ids=lambda command: command[0],
)
def test_rows_unlike_the_sample_are_counted(inside, tmp_path, command):
    name, *options = command
    if name == "report":
        pytest.importorskip("jinja2")
        options = ["--no-control", "--out", tmp_path / "page.html"]
    for rows, said in ((88, True), (15, False)):
        csv.write_csv(unlike(read_table(inside / "test.csv"), rows), tmp_path / "t.csv")
        told = call(name, "rent.localma", tmp_path / "t.csv", *options)
        assert (UNLIKE in told.stderr) == said
        assert told.stderr.count("unlike") == said
        assert "rows are unlike" not in told.stdout


def test_predict_counts_rows_unlike_the_sample_part_by_part(inside, tmp_path, monkeypatch):
    path = rewritten(inside, tmp_path, lambda table: unlike(table, 88))
    monkeypatch.setattr(files, "BLOCK_BYTES", 2000)
    assert len(list(files.open_table(path).blocks())) > 5
    asked = []
    answer = production_tables.answer
    monkeypatch.setattr(
        production_tables,
        "answer",
        lambda model, X, *how: asked.append(len(X)) or answer(model, X, *how),
    )
    told = call("predict", "rent.localma", path, "--out", tmp_path / "s.csv", "--json")
    assert UNLIKE in told.stderr
    assert json.loads(told.stdout)["unlike_sample"] == 88
    assert sum(asked) == 200
    few = call("predict", "rent.localma", "new.csv", "--out", tmp_path / "s.csv")
    assert "unlike" not in few.stderr


def test_only_the_module_of_the_command_is_imported():
    code = """
import sys
from typer.testing import CliRunner
from localma.cli import app
assert CliRunner().invoke(app, ["report", "--help"]).exit_code == 0
print(*sorted(name for name in sys.modules if name.startswith("localma.cli.")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "localma.cli.app",
        "localma.cli.report",
        "localma.cli.tables",
        "localma.cli.terminal",
    ]


def test_a_mistyped_command_is_corrected():
    assert "Did you mean 'predict'?" in call("predcit", code=2).output


def test_constant_weights_are_the_same_for_rows_unlike_the_sample(tmp_path):
    rng = np.random.default_rng(0)
    y, x = rng.normal(size=(2, 100))
    table = {"x": x, "pred_right": y, "pred_high": y + 30, "y": y}
    csv.write_csv(pa.table(table), tmp_path / "t.csv")
    csv.write_csv(pa.table({**table, "x": x + 2000}), tmp_path / "new.csv")
    out = tmp_path / "m.localma"
    call("fit", tmp_path / "t.csv", "--target", "y", "--predictions", "pred_*", "--out", out)
    assert "Use candidate 'pred_right' alone." in load(out).verdict_
    told = call("predict", out, tmp_path / "new.csv", "--out", tmp_path / "s.csv", "--json")
    assert json.loads(told.stdout)["unlike_sample"] == 100
    assert told.stderr == ""


# What makes a model doubtful


def in_one_line(text):
    return " ".join(text.split())


@pytest.mark.parametrize("gate", ["auto", "global"])
def test_shuffled_targets_are_said_by_fit_evaluate_and_report(tmp_path, gate):
    table = make_table(400)
    rng = np.random.default_rng(0)
    shuffled = pa.array(rng.permutation(table["rent"].to_numpy()))
    table = table.set_column(table.column_names.index("rent"), "rent", shuffled)
    csv.write_csv(table[:250], tmp_path / "train.csv")
    csv.write_csv(table[250:], tmp_path / "test.csv")
    out = tmp_path / "m.localma"
    fitting = ["fit", tmp_path / "train.csv", "--target", "rent", "--predictions", "pred_*"]
    fitting += ["--gate", gate, "--out", out]
    worse = "The combined prediction is worse than a constant"
    fitted = call(*fitting)
    assert in_one_line(fitted.stdout).count(worse) == 1
    assert "pay" not in fitted.stdout
    assert "Warning" not in fitted.output
    told = call(*fitting, "--json")
    assert json.loads(told.stdout)["cautions"][0]["kind"] == "worse_than_constant"
    assert told.stderr.startswith(worse)
    judged = call("evaluate", out, tmp_path / "test.csv", "--no-control")
    assert in_one_line(judged.stdout).startswith(worse)
    assert "No gain is claimed." in in_one_line(judged.stdout)
    assert "Warning" not in judged.output
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    said = call("report", out, tmp_path / "test.csv", "--out", page, "--no-control")
    assert in_one_line(said.stdout).startswith(f"Do not use this combination. {worse}")
    text = page.read_text()
    headline = '<p class="verdict"><strong>Do not use this combination.</strong></p>'
    assert re.search(
        f"{headline}\\s*<div[^>]*><p><strong>Caution: read this first</strong></p>", text
    )
    assert f"<p>{worse}" in text
    assert "lower" not in text.split("<nav", 1)[0].split("<body>", 1)[1]


def test_a_column_of_the_other_class_names_the_option(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    p = 1 / (1 + np.exp(-2 * x))
    y = np.where(rng.uniform(size=300) < p, "yes", "no")
    table = pa.table({"x": x, "m_one": 1 - p, "m_two": 1 - p**1.2, "y": y})
    csv.write_csv(table, tmp_path / "t.csv")
    fitting = ["fit", tmp_path / "t.csv", "--target", "y", "--predictions", "m_*"]
    fitting += ["--out", tmp_path / "m.localma"]
    told = in_one_line(call(*fitting).stdout)
    assert "'m_one' and 'm_two' would beat the constant as 1 - p" in told
    assert "--positive" in told
    right = in_one_line(call(*fitting, "--positive", "no").stdout)
    assert "worse than a constant" not in right


def test_a_column_that_holds_the_target_is_named(tmp_path):
    table = make_table(200)
    table = table.append_column("price", pa.array(np.log(table["rent"].to_numpy())))
    csv.write_csv(table, tmp_path / "t.csv")
    fitting = ["fit", tmp_path / "t.csv", "--target", "rent", "--predictions", "pred_*"]
    told = in_one_line(call(*fitting, "--out", tmp_path / "m.localma").stdout)
    assert "Column 'price' alone tells the target almost perfectly" in told


def test_constant_weights_are_said_to_be_constant(tmp_path):
    csv.write_csv(make_table(200), tmp_path / "t.csv")
    out = tmp_path / "m.localma"
    fitting = ["fit", tmp_path / "t.csv", "--target", "rent", "--predictions", "pred_*"]
    call(*fitting, "--gate", "global", "--out", out)
    told = in_one_line(call("weights", out, tmp_path / "t.csv").stdout)
    assert "The weights are the same for every row." in told
    assert "region" not in told
    assert "trusted most where" not in told
    pytest.importorskip("jinja2")
    call("report", out, tmp_path / "t.csv", "--out", tmp_path / "r.html", "--no-control")
    page = (tmp_path / "r.html").read_text()
    assert "The weights are the same for every row." in page
    assert "Which features move the weights" not in page
    assert "Weights along a feature" not in page
    assert "Error by region" not in page


# Which column is what


def test_the_gate_does_not_see_the_day_of_dates_in_the_order_of_the_rows(tmp_path):
    days = np.datetime64("2024-01-01") + np.arange(400)
    table = make_table(400).set_column(4, "listed", pa.array(days))
    csv.write_csv(table[:300], tmp_path / "train.csv")
    csv.write_csv(table[300:], tmp_path / "later.csv")
    out = tmp_path / "m.localma"
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--out", out, "--json"]
    told = json.loads(call("fit", tmp_path / "train.csv", *fit_to).stdout)
    assert told["features"] == ["area", "rooms", "district", "listed"]
    encoder = load(out).gate_features_.transformer
    assert encoder.get_feature_names_out().tolist()[-2:] == ["listed, week sin", "listed, week cos"]
    judged = call("evaluate", out, tmp_path / "later.csv", "--no-control", "--json")
    losses = {e["kind"]: e["loss"]["value"] for e in json.loads(judged.stdout)["entries"]}
    assert losses["local"] < 0.5 * losses["global"]
    assert judged.stderr == ""


def test_where_no_column_is_left_to_see_it_says_why(tmp_path):
    csv.write_csv(make_table(50), tmp_path / "train.csv")
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--out", tmp_path / "m.localma"]
    named = ["--features", "id"]
    failed = call("fit", tmp_path / "train.csv", *fit_to, *named, code=2)
    words = " ".join(failed.stderr.split())
    assert "all are left out: 'id', nearly all values are different. Add other columns" in words
    call("fit", tmp_path / "train.csv", *fit_to, *named, "--gate", "global")


def test_columns_of_a_pool_are_no_features(inside, tmp_path):
    (tmp_path / "pool.toml").write_text(
        '[north]\ncolumn = "pred_north"\n[south]\ncolumn = "pred_s*"\n'
    )
    fit_to = ["--target", "rent", "--models", tmp_path / "pool.toml", "--gate", "global"]
    call("fit", "train.csv", *fit_to, "--out", tmp_path / "m.localma")
    model = load(tmp_path / "m.localma")
    assert [c.name for c in model.gate_features_.transformer.columns_] == [
        "area", "rooms", "district", "listed",
    ]  # fmt: skip
    seen = ["--features", "area,pred_north", "--out", tmp_path / "m"]
    assert (
        "the gate does not see predictions"
        in call("fit", "train.csv", *fit_to, *seen, code=2).stderr
    )


def test_a_glob_skips_the_target(tmp_path):
    table = make_table(60).rename_columns({"rent": "pred_rent"})
    csv.write_csv(table, tmp_path / "t.csv")
    fit_to = ["--target", "pred_rent", "--predictions", "pred_*", "--gate", "global"]
    call("fit", tmp_path / "t.csv", *fit_to, "--out", tmp_path / "m.localma")
    assert load(tmp_path / "m.localma").candidate_names_ == ("pred_north", "pred_south")


def test_columns_that_the_gate_does_not_see_are_not_needed(inside, tmp_path):
    out, scored = tmp_path / "m.localma", tmp_path / "s.csv"
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--json", "--gate", "local"]
    told = json.loads(call("fit", "train.csv", *fit_to, "--out", out).stdout)
    assert told["features"] == ["area", "rooms", "district", "listed"]
    assert told["left_out"] == {"id": "nearly all values are different"}
    needed = ["area", "rooms", "district", "listed", "pred_north", "pred_south"]
    assert load(out).feature_names_in_.tolist() == needed
    path = rewritten(inside, tmp_path, lambda table: table.drop_columns(["id"]))
    call("predict", out, path, "--out", scored)
    assert read_table(scored).num_rows == 200


def test_models_that_do_not_state_their_inputs_need_every_column(inside, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "import numpy as np\n"
        "def by_id(table):\n    return np.array([float(v.as_py()[4:]) for v in table['id']])\n"
    )
    (tmp_path / "pool.toml").write_text(
        '[theirs]\nimport = "theirs:by_id"\n[north]\ncolumn = "pred_north"\n'
    )
    call(
        "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml", "--trust",
        "--gate", "global", "--out", tmp_path / "m.localma",
    )  # fmt: skip
    names = load(tmp_path / "m.localma", trust=True).feature_names_in_.tolist()
    assert names == read_table(inside / "new.csv").column_names


def test_inputs_by_position_are_those_of_the_file(inside, tmp_path):
    (tmp_path / "placed.py").write_text("def first(table):\n    return table[0].to_numpy()\n")
    (tmp_path / "pool.toml").write_text(
        '[placed]\nimport = "placed:first"\ninputs = [1]\n[north]\ncolumn = "pred_north"\n'
    )
    out, scored = tmp_path / "m.localma", tmp_path / "s.csv"
    call(
        "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml", "--trust",
        "--features", "district", "--gate", "equal", "--out", out,
    )  # fmt: skip
    call("predict", out, "new.csv", "--trust", "--out", scored)
    new = read_table(inside / "new.csv")
    halves = (new["area"].to_numpy() + new["pred_north"].to_numpy()) / 2
    assert read_table(scored)["prediction"].to_numpy() == pytest.approx(halves)


def test_models_that_state_their_inputs_need_no_other_column(inside, tmp_path):
    (tmp_path / "ours.py").write_text("def half(table):\n    return table['area'].to_numpy() / 2\n")
    (tmp_path / "pool.toml").write_text(
        '[ours]\nimport = "ours:half"\ninputs = ["area"]\n[north]\ncolumn = "pred_north"\n'
    )
    call(
        "fit", "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml", "--trust",
        "--features", "rooms", "--weight", "area", "--gate", "global",
        "--out", tmp_path / "m.localma",
    )  # fmt: skip
    names = load(tmp_path / "m.localma", trust=True).feature_names_in_.tolist()
    assert names == ["area", "rooms", "pred_north"]


def classes_table(tmp_path, **columns):
    rng = np.random.default_rng(0)
    y = rng.choice(["no", "yes"], 60)
    right = np.where(y == "yes", 0.8, 0.2) + rng.uniform(-0.1, 0.1, 60)
    held = {name: right if of == "yes" else 1 - right for name, of in columns.items()}
    csv.write_csv(pa.table({"x": rng.normal(size=60), **held, "y": y}), tmp_path / "c.csv")
    return tmp_path / "c.csv"


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"a_no": "no", "b_no": "no"}, []),
        ({"a_no": "no", "a_yes": "yes", "b_yes": "yes"}, []),
        ({"a_no": "no", "a_yes": "yes", "b_no": "no"}, []),
        ({"casino": "yes", "b_yes": "yes"}, []),
        ({"a_no": "yes", "b_no": "yes"}, ["--positive", "yes"]),
        ({"casino": "no", "other": "no"}, ["--positive", "no"]),
    ],
)
def test_a_column_named_after_a_class_holds_its_probability(tmp_path, columns, options):
    path = classes_table(tmp_path, **columns)
    named = [word for name in columns for word in ("--predictions", name)]
    call("fit", path, "--target", "y", *named, *options, "--gate", "equal", "--out", tmp_path / "m")
    found = json.loads(call("evaluate", tmp_path / "m", path, "--no-control", "--json").stdout)
    assert [entry["metrics"]["accuracy"]["value"] for entry in found["entries"]] == [1.0] * len(
        found["entries"]
    )


def test_models_that_look_like_classes_are_explained(tmp_path):
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=40), "m_0": rng.uniform(size=40), "m_1": rng.uniform(size=40)}
    csv.write_csv(pa.table({**table, "y": np.arange(40) % 2}), tmp_path / "c.csv")
    fit_to = ["--target", "y", "--predictions", "m_*", "--task", "classification"]
    result = call("fit", tmp_path / "c.csv", *fit_to, "--out", tmp_path / "m", code=1)
    assert "'m_0', 'm_1' suggest that they are the classes of one model" in str(result.exception)


def timed(tmp_path, days):
    table = make_table(len(days)).append_column("day", pa.array(days))
    csv.write_csv(table, tmp_path / "t.csv")
    return ["fit", tmp_path / "t.csv", "--target", "rent", "--predictions", "pred_*", "--features",
            "area", "--time", "day", "--out", tmp_path / "m.localma"]  # fmt: skip


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (["31.12.2023", "1.2.2024"] * 20, "times must be dates such as 2024-05-31"),
        ([1, None] * 20, "every row needs a time, and 20 have none"),
        ([2020, 2021, 2022] * 10, "3 times cannot be split into 5 folds. Use --folds 2"),
    ],
)
def test_times_have_an_order(tmp_path, days, words):
    said = " ".join(call(*timed(tmp_path, days), code=2).stderr.replace("│", " ").split())
    assert words in said


def test_rows_of_one_time_are_not_judged_by_one_another(tmp_path):
    call(*timed(tmp_path, [2018 + k % 7 for k in range(140)]), "--folds", "3")
    assert len(load(tmp_path / "m.localma").gate_.fold_answers_) == 3


def test_rows_are_counted_as_in_the_file(inside, tmp_path, monkeypatch):
    table = read_table(inside / "test.csv")
    rents = pa.array([None if k < 10 else v for k, v in enumerate(table["rent"].to_pylist())])
    csv.write_csv(table.set_column(7, "rent", rents), tmp_path / "t.csv")
    written = []
    monkeypatch.setattr("localma.report.write", lambda found, *_, **__: written.append(found))
    call("report", "rent.localma", tmp_path / "t.csv", "--no-control", "--out", tmp_path / "r.html")
    (rows,) = (found.rows for found in written)
    areas = table["area"].to_pylist()
    assert min(rows.index) >= 10
    assert [float(a) for a in rows.features["area"]] == [areas[k] for k in rows.index]


# Calls that cannot be meant


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["fit", "train.csv", "--out", "train.csv"],
            "'train.csv' is an input of this command and would be replaced",
        ),
        (
            ["report", "rent.localma", "test.csv", "--out", "rent.localma"],
            "is an input of this command",
        ),
        (["fit", "train.csv", "--out", "."], "is a folder; name a file in it"),
        (["fit", "train.csv", "--out", "x", "--features", ""], "--features names no column"),
        (["fit", "train.csv", "--out", "x", "--positive", "yes"], "holds numbers; leave it out"),
        (["fit", "train.csv", "--out", "x", "--seed", "-1"], "greater than or equal to 0"),
        (
            ["evaluate", "rent.localma", "test.csv", "--seed", "99999999999"],
            "less than or equal to 4294967295",
        ),
        (["explain", "rent.localma", "test.csv", "--row", "-201"], "between -200 and 199"),
        (["cache", "--older-than", "3"], "only works with --clean"),
        (["cache", "--folder", "train.csv"], "is a file"),
    ],
)
def test_calls_that_cannot_be_meant_are_refused(inside, arguments, words):
    if arguments[0] == "fit":
        arguments = [*arguments, "--target", "rent", "--predictions", "pred_*"]
    before = (inside / "train.csv").read_bytes(), (inside / "rent.localma").read_bytes()
    said = " ".join(call(*arguments, code=2).stderr.replace("│", " ").split())
    assert words in said
    assert before == ((inside / "train.csv").read_bytes(), (inside / "rent.localma").read_bytes())


def test_one_bad_cell_in_the_target_is_named(inside, tmp_path):
    lines = (inside / "train.csv").read_text().splitlines()
    lines[7] = lines[7].rsplit(",", 1)[0] + ",oops"
    (tmp_path / "t.csv").write_text("\n".join(lines))
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--out", tmp_path / "m"]
    said = " ".join(call("fit", tmp_path / "t.csv", *fit_to, code=2).stderr.split())
    assert "except in 1 of 300 cells, such as 'oops'" in said


@pytest.mark.parametrize("weights", [[0.0] * 200, [-1.0] + [1.0] * 199, [None] + [1.0] * 199])
def test_weights_that_are_none_are_refused_when_a_model_is_judged(inside, tmp_path, weights):
    for part, values in (("train", [1.0] * 300), ("test", weights)):
        table = read_table(inside / f"{part}.csv").append_column("w", pa.array(values))
        csv.write_csv(table, tmp_path / f"{part}.csv")
    fit_to = ["--target", "rent", "--predictions", "pred_*", "--weight", "w", "--gate", "global"]
    call("fit", tmp_path / "train.csv", *fit_to, "--out", tmp_path / "m.localma")
    result = call("evaluate", tmp_path / "m.localma", tmp_path / "test.csv", code=1)
    assert "Weights must be numbers, zero or more" in str(result.exception)
    result = call("evaluate", tmp_path / "m.localma", "test.csv", code=1)
    assert "fitted with the row weights in the column 'w'" in str(result.exception)


def test_a_written_table_has_the_permissions_of_a_new_file(inside, tmp_path):
    before = os.umask(0o077)
    try:
        call("predict", "rent.localma", "new.csv", "--out", tmp_path / "s.csv")
    finally:
        os.umask(before)
    assert (tmp_path / "s.csv").stat().st_mode & 0o777 == 0o600


def test_version():
    assert re.fullmatch(r"localma \d+\.\d+\S*\n", call("--version").stdout)


# How cells are written


def messy(inside, name, *, share=None, area=None):
    """A table of the fixture with cells as people write them; the header, then lists of cells."""
    table = read_table(inside / name).to_pydict()
    table["area"] = [
        "-" if k % 40 == 3 else "n/a" if k % 40 == 7 else str(value)
        for k, value in enumerate(table["area"])
    ]
    table["share"] = [f"{k % 90 + 5}%" for k in range(len(table["area"]))]
    table.update({} if share is None else {"share": share(table)})
    table.update({} if area is None else {"area": area(table)})
    return pa.table({name: [str(c or "") for c in cells] for name, cells in table.items()})


def fit_to(out, *more):
    return ["--target", "rent", "--predictions", "pred_*", "--out", out, *more]


def test_stray_text_does_not_turn_numbers_into_categories(inside, tmp_path):
    csv.write_csv(messy(inside, "train.csv"), tmp_path / "train.csv")
    csv.write_csv(messy(inside, "test.csv"), tmp_path / "test.csv")
    out = tmp_path / "m.localma"
    told = call("fit", tmp_path / "train.csv", *fit_to(out))
    assert "Column 'area' is read as numbers; 8 cells count as missing: '-'." in told.stderr
    assert "Column 'share' is read as numbers: '5%' is 0.05." in told.stderr
    kinds = {column.name: column.kind for column in load(out).gate_features_.transformer.columns_}
    assert kinds == {
        "area": "number", "rooms": "number", "district": "category", "listed": "date",
        "share": "number",
    }  # fmt: skip
    losses = [
        {
            entry["kind"]: entry["loss"]["value"]
            for entry in json.loads(
                call("evaluate", model, table, "--no-control", "--json").stdout
            )["entries"]
        }
        for model, table in (("rent.localma", "test.csv"), (out, tmp_path / "test.csv"))
    ]
    clean, stray = (1 - loss["local"] / loss["global"] for loss in losses)
    assert clean > 0.8
    assert stray > 0.9 * clean


def test_a_column_read_as_text_is_told_with_the_way_out(inside, tmp_path):
    strange = messy(inside, "train.csv", area=lambda t: ["ask", *t["area"][1:]])
    csv.write_csv(strange, tmp_path / "t.csv")
    out = tmp_path / "m.localma"
    told = call("fit", tmp_path / "t.csv", *fit_to(out, "--gate", "global")).stderr
    assert "Column 'area' is read as text: 1 of 284 cells are not numbers, such as 'ask'" in told
    assert "add --na 'ask'" in told
    told = call("fit", tmp_path / "t.csv", *fit_to(out, "--gate", "global", "--na", "ask,x")).stderr
    assert "Column 'area' is read as numbers" in told


def test_percent_signs_must_be_there_again(inside, tmp_path):
    csv.write_csv(messy(inside, "train.csv"), tmp_path / "t.csv")
    plain = messy(inside, "new.csv", share=lambda t: [s.strip("%") for s in t["share"]])
    csv.write_csv(plain, tmp_path / "new.csv")
    out = tmp_path / "m.localma"
    call("fit", tmp_path / "t.csv", *fit_to(out, "--gate", "local"))
    failed = call("predict", out, tmp_path / "new.csv", "--out", tmp_path / "s.csv", code=1)
    assert "'5' in column 'share' of new.csv, line 2, is not a number with a percent sign" in str(
        failed.exception
    )


def test_long_ids_are_kept_exactly(inside, tmp_path):
    ids = [str(1234567890123456780 + k) for k in range(500)]
    for name, rows in (("train", ids[:300]), ("new", ids[300:])):
        table = read_table(inside / f"{name}.csv")
        table = table.append_column("key", pa.array(rows))
        table = table.append_column("longer", pa.array([f"98765{key}" for key in rows]))
        csv.write_csv(table, tmp_path / f"{name}.csv", csv.WriteOptions(quoting_style="none"))
    out, scored = tmp_path / "m.localma", tmp_path / "s.csv"
    told = call("fit", tmp_path / "train.csv", *fit_to(out))
    assert "does not see 'key': nearly all values are different" in " ".join(told.stdout.split())
    call("predict", out, tmp_path / "new.csv", "--keep", "key,longer", "--out", scored)
    lines = [line.replace('"', "").split(",")[:2] for line in scored.read_text().splitlines()[1:]]
    assert lines == [[key, f"98765{key}"] for key in ids[300:]]


def test_long_ids_of_a_file_with_types(inside, tmp_path):
    table = read_table(inside / "train.csv")
    parquet.write_table(
        table.append_column("key", pa.array(np.arange(300) * 7 + 2**60)), tmp_path / "t.parquet"
    )
    told = json.loads(
        call("fit", tmp_path / "t.parquet", *fit_to(tmp_path / "m.localma", "--json")).stdout
    )
    assert told["left_out"]["key"] == "nearly all values are different"


def test_columns_of_one_name_are_told_apart_or_refused(inside, tmp_path):
    header, *lines = (inside / "train.csv").read_text().splitlines()
    out = tmp_path / "m.localma"
    (tmp_path / "t.csv").write_text("\n".join([header.replace('"rooms"', '"area"'), *lines]))
    told = call("fit", tmp_path / "t.csv", *fit_to(out, "--gate", "local"))
    assert "several columns named 'area'" in told.stderr
    assert "The gate sees area, area (2), district, listed." in " ".join(told.stdout.split())
    call("predict", out, tmp_path / "t.csv", "--out", tmp_path / "s.csv")
    (tmp_path / "t.csv").write_text("\n".join([header.replace('"area"', '"rent"'), *lines]))
    failed = call("fit", tmp_path / "t.csv", *fit_to(out), code=1)
    assert "--target: t.csv has several columns named 'rent'" in str(failed.exception)


def test_options_say_how_a_text_file_is_written(inside, tmp_path):
    text = (inside / "train.csv").read_text().replace("Pudong", "Pudöng").replace(",", ":")
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    out = tmp_path / "m.localma"
    failed = call("fit", tmp_path / "t.csv", *fit_to(out), code=1)
    assert "--encoding cp1252" in str(failed.exception)
    how = ["--sep", ":", "--encoding", "cp1252", "--na", "Jingan"]
    call("fit", tmp_path / "t.csv", *fit_to(out, *how, "--gate", "local"))
    (district,) = (c for c in load(out).gate_features_.transformer.columns_ if c.name == "district")
    assert district.levels == ["Pudöng", "Xuhui"]
    assert district.has_missing
    for command in (["evaluate", "--no-control"], ["weights"], ["explain", "--row", "1"]):
        call(command[0], out, tmp_path / "t.csv", *how, *command[1:])
    for wrong in (["--sep", ",,"], ["--decimal", "x"]):
        call("fit", tmp_path / "t.csv", *fit_to(out, *wrong), code=2)


# Regression or classification


def zero_one(tmp_path, labels=(0, 1), **columns):
    answers = label_table(200)["answer"].to_pylist()
    y = [labels[answer == "yes"] for answer in answers]
    table = label_table(200).select(["x", "p_a", "p_b"]).append_column("y", pa.array(y))
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values))
    csv.write_csv(table, tmp_path / "t.csv")
    return ["fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.localma"]


@pytest.mark.parametrize("labels", [(0, 1), (1, 2), (0.0, 1.0)])
def test_two_numbers_may_be_classes(tmp_path, labels):
    fit = [*zero_one(tmp_path, labels), "--predictions", "p_a,p_b"]
    words = " ".join(call(*fit, code=2).stderr.split())
    assert f"target 'y' has only the values {labels[0]:g} and {labels[1]:g}" in words
    assert "--task classification if they are classes: the predictions are probabilities of " in (
        words
    )
    assert "--task regression if they are quantities" in words
    for options, task, loss in (
        (["--task", "classification"], "classification", "cross_entropy"),
        (["--task", "regression"], "regression", "squared_error"),
        (["--loss", "squared_error"], "regression", "squared_error"),
        (["--loss", "brier"], "classification", "brier"),
        (["--positive", f"{labels[1]:g}"], "classification", "cross_entropy"),
    ):
        told = json.loads(call(*fit, *options, "--gate", "global", "--json").stdout)
        assert (told["task"], told["loss"]) == (task, loss)


def test_whole_numbers_are_classes_if_columns_are_named_after_them(tmp_path):
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(3), size=200)
    columns = {f"m_{k}": chances[:, k] for k in range(3)}
    stars = rng.integers(0, 3, 200)
    fit = zero_one(tmp_path, stars=stars, **columns)
    fit[3] = "stars"
    asked = call(*fit, "--predictions", "m_*", code=2).stderr
    assert "has only the values 0, 1, ..., 2" in " ".join(asked.split())
    told = call(*fit, "--predictions", "p_*", "--gate", "global", "--json")
    assert json.loads(told.stdout)["task"] == "regression"


def test_fit_prints_task_loss_rows_and_features(inside, tmp_path):
    words = call("fit", "train.csv", *fit_to(tmp_path / "m.localma", "--gate", "global")).stdout
    assert words.startswith("Regression, loss squared_error, 300 labelled rows of train.csv.")
    assert "The gate sees area, rooms, district, listed." in words
    fit = [*zero_one(tmp_path), "--predictions", "p_a,p_b", "--task", "classification"]
    words = call(*fit, "--gate", "global").stdout
    assert words.startswith("Classification (0, 1), loss cross_entropy, 200 labelled rows")


def test_a_loss_for_classes_does_not_go_with_a_regression(tmp_path):
    fit = [*zero_one(tmp_path), "--predictions", "p_a"]
    refused = call(*fit, "--task", "regression", "--loss", "cross_entropy", code=2).stderr
    assert "--loss cross_entropy is for classes" in " ".join(refused.split())


# Rows without a prediction


@pytest.fixture
def gaps(inside, tmp_path):
    """New rows, some without a prediction, after a cell with a line break and an empty line."""
    header, *lines = (inside / "new.csv").read_text().splitlines()
    place = [name.strip('"') for name in header.split(",")].index("pred_north")

    def without(line, column, cell=""):
        cells = line.split(",")
        cells[column] = cell
        return ",".join(cells)

    lines[0] = lines[0].replace('"row', '"a\nrow', 1)
    lines[3], lines[70] = without(lines[3], place), without(lines[70], place, "NA")
    lines[9] = without(lines[9], place + 1, "n/a")
    lines.insert(1, "")
    path = tmp_path / "gaps.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_rows_without_a_prediction_are_named_by_their_lines(gaps, tmp_path):
    out = tmp_path / "s.csv"
    failed = str(call("predict", "rent.localma", gaps, "--out", out, code=1).exception)
    assert "'pred_north' has no finite prediction in lines 7 and 74 of gaps.csv" in failed
    assert "add --missing renormalize" in failed
    assert not out.exists()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("part_bytes", [2000, 10**6])
def test_the_other_candidates_answer_where_one_has_no_prediction(
    gaps, inside, tmp_path, monkeypatch, suffix, part_bytes
):
    monkeypatch.setattr(files, "BLOCK_BYTES", part_bytes)
    out, whole = tmp_path / f"s{suffix}", tmp_path / "whole.csv"
    told = call("predict", "rent.localma", gaps, "--missing", "renormalize", "--out", out, "--json")
    printed = json.loads(told.stdout)
    assert printed["without_prediction"] == 0
    assert printed["failed"] == {"pred_north": 2, "pred_south": 1}
    assert "0 of 200 rows have no prediction" in told.stderr
    assert "candidate 'pred_north' has none in lines 7 and 74 of gaps.csv" in told.stderr
    assert "candidate 'pred_south' has none in line 13 of gaps.csv" in told.stderr
    call("predict", "rent.localma", inside / "new.csv", "--out", whole)
    table, complete = read_table(out), read_table(whole)
    scored, expected = table["prediction"].to_pylist(), complete["prediction"].to_pylist()
    new = read_table(inside / "new.csv")
    known = [k for k in range(200) if k not in (3, 9, 70)]
    assert [scored[k] for k in known] == pytest.approx([expected[k] for k in known])
    for row, other in {3: "south", 70: "south", 9: "north"}.items():
        assert scored[row] == pytest.approx(new[f"pred_{other}"][row].as_py())
        assert table[f"weight_pred_{other}"][row].as_py() == 1.0
        assert table["asked"][row].as_py() == f"pred_{other}"


def test_a_class_without_a_prediction_is_empty_too(tmp_path):
    fit = [*zero_one(tmp_path), "--predictions", "p_a,p_b", "--task", "classification"]
    call(*fit, "--gate", "equal")
    table = read_table(tmp_path / "t.csv")
    names = table.column_names
    for name in ("p_a", "p_b"):
        column = pa.array([None, *table[name].to_pylist()[1:]])
        table = table.set_column(names.index(name), name, column)
    csv.write_csv(table, tmp_path / "new.csv")
    model, out = tmp_path / "m.localma", tmp_path / "s.jsonl"
    call("predict", model, tmp_path / "new.csv", "--missing", "nan", "--out", out)
    first, second, *_ = map(json.loads, out.read_text().splitlines())
    assert (first["prediction"], first["p_1"], first["weight_p_a"]) == (None, None, 0.0)
    assert second["prediction"] in (0, 1)
    refused = call(
        "predict", model, tmp_path / "new.csv", "--missing", "renormalize", "--out", out, code=1
    )
    assert "No candidate has a prediction in line 2 of new.csv" in str(refused.exception)
    assert "add --missing nan" in str(refused.exception)


def test_all_rows_may_be_without_a_prediction(inside, tmp_path):
    table = read_table(inside / "new.csv")
    empty = pa.array([None] * 200, pa.float64())
    for name in ("pred_south", "pred_north"):
        table = table.set_column(table.column_names.index(name), name, empty)
    csv.write_csv(table, tmp_path / "t.csv")
    out = tmp_path / "s.csv"
    call("predict", "rent.localma", tmp_path / "t.csv", "--missing", "nan", "--out", out)
    assert read_table(out)["prediction"].null_count == 200


def test_other_words_for_missing_are_refused(inside, tmp_path):
    refused = call(
        "predict", "rent.localma", "new.csv", "--missing", "skip", "--out", tmp_path / "s.csv",
        code=2,
    )  # fmt: skip
    assert "--missing must be error, renormalize or nan" in " ".join(refused.stderr.split())


def test_fewer_candidates_run_within_a_budget(inside, tmp_path):
    out = tmp_path / "s.csv"
    call("predict", "rent.localma", "new.csv", "--max-candidates", "1", "--out", out)
    weights = [read_table(out)[f"weight_pred_{name}"].to_numpy() for name in ("north", "south")]
    assert set(np.max(weights, axis=0)) == {1.0}
    refused = call("predict", "rent.localma", "new.csv", "--budget", ".5", "--out", out, code=2)
    assert "No candidate fits a --budget of 0.5 per row; the cheapest" in " ".join(
        refused.stderr.split()
    )


def test_fits_on_incomplete_predictions(gaps, inside, tmp_path):
    table = read_table(inside / "train.csv")
    predictions = table["pred_north"].to_pylist()
    place = table.column_names.index("pred_north")
    half = pa.array([None if k % 2 else value for k, value in enumerate(predictions)])
    csv.write_csv(table.set_column(place, "pred_north", half), tmp_path / "half.csv")
    out = tmp_path / "half.localma"
    fit = [
        "fit",
        tmp_path / "half.csv",
        "--target",
        "rent",
        "--predictions",
        "pred_*",
        "--out",
        out,
    ]
    failed = str(call(*fit, code=1).exception)
    assert "add --missing renormalize" in failed
    call(*fit, "--missing", "renormalize", "--robust", "--gate", "global")
    call("predict", out, gaps, "--out", tmp_path / "s.csv")  # as the fit
    assert read_table(tmp_path / "s.csv")["prediction"].null_count == 0


@pytest.mark.parametrize(
    "command", [["explain", "--row", "3"], ["weights"], ["evaluate"], ["report"]]
)
def test_every_command_names_the_line(gaps, inside, tmp_path, command):
    name, *options = command
    table, lines = gaps, "line 7" if name == "explain" else "lines 7 and 74"
    if name in ("evaluate", "report"):
        pytest.importorskip("jinja2")
        lines = "rows 13 and 80"
        rows = files.open_table(gaps).read()
        rents = read_table(inside / "test.csv")["rent"]
        later = pa.concat_tables([rows.slice(0, 10), rows])  # the first ten without a target
        rents = pa.chunked_array([pa.nulls(10, pa.float64()), *rents.chunks])
        table = tmp_path / "gaps.parquet"
        parquet.write_table(later.append_column("rent", rents), table)
        if name == "report":
            options = ["--out", tmp_path / "r.html"]
    failed = str(call(name, "rent.localma", table, *options, code=1).exception)
    assert f"'pred_north' has no finite prediction in {lines} of gaps" in failed


def test_a_fit_names_the_lines_too(inside, tmp_path):
    table = make_table(50)
    rents = [None, *table["rent"].to_pylist()[1:]]
    north = [None if k in (4, 30) else v for k, v in enumerate(table["pred_north"].to_pylist())]
    table = table.set_column(7, "rent", pa.array(rents)).set_column(
        5, "pred_north", pa.array(north)
    )
    csv.write_csv(table, tmp_path / "t.csv")
    for order in ([], ["--time", "listed"]):
        out = tmp_path / "m.localma"
        failed = str(call("fit", tmp_path / "t.csv", *fit_to(out, *order), code=1).exception)
        assert "no finite prediction in lines 6 and 32 of t.csv" in failed


# Standard input and output, names in lists, terminals


def test_standard_input_and_output(folder, tmp_path):
    with open(folder / "new.csv") as rows:
        scored = program(
            "predict", folder / "rent.localma", "-", "--out", "-", "--keep", "id,district",
            stdin=rows,
        )  # fmt: skip
    assert scored.returncode == 0, scored.stderr
    lines = scored.stdout.splitlines()
    assert lines[0].startswith('"id","district","prediction"')
    assert len(lines) == 201
    assert "wrote 200 rows to standard output" in scored.stderr
    (tmp_path / "s.csv").write_text(scored.stdout)
    call("predict", folder / "rent.localma", folder / "new.csv", "--out", tmp_path / "t.csv")
    expected = read_table(tmp_path / "t.csv")["prediction"].to_numpy()
    assert read_table(tmp_path / "s.csv")["prediction"].to_numpy() == pytest.approx(expected)


def test_a_table_of_another_format_on_standard_input(folder, tmp_path):
    parquet.write_table(read_table(folder / "test.csv"), tmp_path / "t.parquet")
    with open(tmp_path / "t.parquet", "rb") as rows:
        done = program(
            "evaluate", folder / "rent.localma", "-", "--no-control", stdin=rows,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "200 rows of standard input" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_output_that_is_no_table_needs_a_file(inside):
    assert "name a file" in call("fit", "train.csv", *fit_to("-"), code=2).stderr
    refused = call("predict", "rent.localma", "new.csv", "--out", "-", "--json", code=2)
    assert "leave one out" in " ".join(refused.stderr.split())


def test_lists_of_columns_take_commas(inside, tmp_path):
    out = tmp_path / "m.localma"
    named = ["--target", "rent", "--predictions", "pred_north, pred_south", "--gate", "global"]
    call("fit", "train.csv", *named, "--out", out)
    assert load(out).candidate_names_ == ("pred_north", "pred_south")
    table = read_table(inside / "new.csv").rename_columns({"rooms": "rooms, all"})
    csv.write_csv(table, tmp_path / "t.csv")
    fit = ["--features", "area,district", "--gate", "local"]
    call("fit", "train.csv", *fit_to(out, *fit))
    scored = tmp_path / "s.csv"
    kept = ["--keep", "id,district", "--keep", "rooms, all"]
    call("predict", out, tmp_path / "t.csv", *kept, "--out", scored)
    assert read_table(scored).column_names[:3] == ["id", "district", "rooms, all"]
    missing = call("predict", out, "new.csv", "--keep", "id,flat", "--out", scored, code=2)
    assert "no column 'flat'" in " ".join(missing.stderr.split())


FORKED_CALLS = """
import json, os, sys
from localma.__main__ import main
from localma.cli import app
codes = []
for number, words in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{number}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["localma", *words.splitlines()]
        sys.exit(main())
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
print(json.dumps(codes))
"""
"""Each call has a process with the streams of a new one, but the program is imported only once."""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on this platform")
@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_terminals_that_lack_signs(folder, tmp_path, settings):
    table = read_table(folder / "test.csv").rename_columns({"pred_north": "pred_上海"})
    csv.write_csv(table, tmp_path / "t.csv")
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONIOENCODING", "LANG")}
    calls = (
        ["fit", "t.csv", *fit_to("m.localma", "--gate", "local")],
        ["evaluate", "m.localma", "t.csv", "--no-control"],
        ["weights", "m.localma", "t.csv", "--json"],
        ["explain", "m.localma", "t.csv", "--row", "1"],
        ["predict", "m.localma", "t.csv", "--out", "-"],
        ["fit", "t.csv", *fit_to("m.localma", "--features", "上")],
        ["fit", "--help"],
    )
    command = [sys.executable, "-c", FORKED_CALLS, *("\n".join(words) for words in calls)]
    options = {"env": {**env, **settings}, "cwd": tmp_path, "check": True, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    codes = json.loads(done.stdout)
    for number, arguments in enumerate(calls):
        printed, errors = (
            (tmp_path / f"{number}.{stream}").read_text("cp1252") for stream in (1, 2)
        )
        assert "Unicode" not in errors, errors
        assert codes[number] == (2 if "上" in arguments else 0), errors
        if arguments[0] == "weights":
            assert "pred_上海" in json.dumps(json.loads(printed), ensure_ascii=False)
        if arguments[0] == "evaluate":
            assert r"pred_\u4e0a\u6d77" in printed.replace("\n", "")
            assert ("+/-" in printed) == (settings.get("PYTHONIOENCODING") != "cp1252")


# What is printed


def test_the_control_the_model_and_their_difference_add_up(inside, monkeypatch):
    monkeypatch.setattr("localma.inspection.comparison.CONTROL_ROWS", 60)
    told = json.loads(call("evaluate", "rent.localma", "test.csv", "--json").stdout)
    by_kind = {entry["kind"]: entry for entry in told["entries"]}
    control, model = by_kind["control"], by_kind["local"]
    gap = control["loss"]["value"] - model["loss"]["value"]
    assert control["to_model"]["value"] == pytest.approx(gap, rel=1e-9)
    assert told["control"]["n_rows"] == 200
    assert told["control"]["n_fitted"] == 40
    figures = [
        float(figure.replace(",", ""))
        for figure in re.search(
            r"a loss of ([\d,.]+), the model ([\d,.]+)\. The control is ([\d,.]+) ±",
            told["control"]["sentence"],
        ).groups()
    ]
    assert figures[0] - figures[1] == pytest.approx(figures[2])


def test_explain_shows_the_probabilities_of_classes(tmp_path):
    fit = [*zero_one(tmp_path), "--predictions", "p_a,p_b", "--task", "classification"]
    call(*fit, "--gate", "equal")
    explain = ["explain", tmp_path / "m.localma", tmp_path / "t.csv", "--row", "3"]
    words = call(*explain).stdout
    assert words.startswith("Row 3 (line 5 of t.csv): ")
    assert "p(0)" in words
    rows = [line.split("│")[1:-1] for line in words.splitlines() if line.startswith("│")]
    table = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    at = read_table(tmp_path / "t.csv").slice(3, 1).to_pylist()[0]
    assert table["p_a"][1] == f"{at['p_a']:.3f}"
    assert table["combined"][1] == f"{(at['p_a'] + at['p_b']) / 2:.3f}"
    told = json.loads(call(*explain, "--json").stdout)
    assert told["candidates"][0]["probabilities"]["1"] == pytest.approx(at["p_a"])


PYTHON = re.compile(r"\.astype|=True|=False|\bX\b|\by\b|\bnp\.|__\w+__|\w+\(path|cv=|groups=")


def test_messages_do_not_speak_of_python(inside, tmp_path):
    (tmp_path / "spoken.py").write_text(
        "import numpy as np\n"
        "def words(table):\n    return np.array(['x'] * table.num_rows)\n"
        "def area(table):\n    return np.nan_to_num(np.asarray(table['area'], float))\n"
    )
    pools = {
        "column": '[a]\ncolumn = "pred_noth"\n',
        "inputs": '[a]\nimport = "spoken:area"\ninputs = ["arae"]\n',
        "words": '[a]\nimport = "spoken:words"\n',
        "option": '[a]\ncolumn = "pred_north"\nnonsense = 1\n',
        "fine": '[a]\nimport = "spoken:area"\n[b]\ncolumn = "pred_north"\n',
    }
    for name, text in pools.items():
        (tmp_path / f"{name}.toml").write_text(text)
    few = [*zero_one(tmp_path), "--predictions", "p_a,p_b", "--task", "classification"]
    call(*few, "--gate", "global")
    call("fit", "train.csv", "--target", "rent", "--models", tmp_path / "fine.toml", "--trust",
         "--gate", "global", "--out", tmp_path / "fine.localma")  # fmt: skip
    model, table, out = tmp_path / "m.localma", tmp_path / "t.csv", ["--out", tmp_path / "o.csv"]
    pooled = ["fit", "train.csv", "--target", "rent", "--out", tmp_path / "x", "--trust"]
    for arguments, code, words in (
        ([*pooled, "--models", tmp_path / "column.toml"], 2, "has no column 'pred_noth'"),
        ([*pooled, "--models", tmp_path / "inputs.toml"], 2, "has no column 'arae'"),
        ([*pooled, "--models", tmp_path / "words.toml"], 1, "must be real numbers"),
        ([*pooled, "--models", tmp_path / "option.toml"], 2, "has no option 'nonsense'"),
        (["predict", tmp_path / "fine.localma", "new.csv", *out], 1, "Add --trust"),
        (["evaluate", model, table, "--target", "x"], 1, "not one of the model's classes 0, 1"),
        (["fit", "train.csv", *fit_to(tmp_path / "x", "--loss", "squard")], 2, "did you mean"),
        (
            [*few[:4], "--predictions", "x", "--task", "classification", *few[4:6]],
            1,
            "line 4 of t.csv",
        ),
        ([*few, "--folds", "150"], 2, "--folds: 150 folds need at least 150 rows of one class"),
    ):
        result = call(*arguments, code=code)
        told = " ".join(f"{result.stderr} {result.exception}".split())
        assert words in told
        assert not PYTHON.search(told), told


def test_inspect_shows_a_file_and_restores_nothing(tmp_path, monkeypatch):
    from localma import model_file
    from localma.storage import array_file

    path = tmp_path / "model.localma"
    X = np.c_[np.linspace(0, 1, 20), np.ones(20), np.zeros(20)]
    pool = {"one\x1b[2J": Column(1), "two": Column(2)}
    LocalMARegressor(pool, gate="global").fit(X, X[:, 0]).save(path)
    file = array_file.read(path)
    recipe = {"kind": "function", "import": "os:system"}
    file.description["candidates"][1]["recipe"] = recipe
    file.description["notes"] = {"target": "rent\x1b]0;title\x07"}
    path.write_bytes(array_file.to_bytes(file.description, file.arrays))
    monkeypatch.setattr(model_file, "from_recipe", None)
    shown = call("inspect", path).stdout
    assert array_file.read(path).sha256 in shown
    assert "(verified)" in shown
    assert "one\\x1b[2J: column\n" in shown
    assert "two: function, needs --trust" in shown
    assert "target: rent\\x1b]0;title\\x07" in shown
    as_json = call("inspect", path, "--json").stdout
    assert "\x1b" not in shown + as_json
    told = json.loads(as_json)
    assert told["description"] == file.description
    assert told["format_version"] == array_file.FORMAT_VERSION
    assert told["arrays"]["global_weights"] == {"dtype": "float64", "shape": [2]}
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    done = program("inspect", path)
    assert done.returncode == 1
    assert "is damaged: its SHA-256 should be" in done.stderr


def test_candidates_are_dropped_and_added(folder, tmp_path):
    small, again, best = (tmp_path / f"{name}.localma" for name in ("small", "again", "best"))
    shown = call("drop", folder / "rent.localma", "pred_south", "--out", small).stdout
    assert "Stale: 'pred_south' was dropped" in shown
    assert "without labelled rows" in shown
    options = ("--predictions", "pred_south", "--out", again)
    shown = call("add", small, folder / "train.csv", *options).stdout
    assert "'pred_south' was added on" in shown
    assert "with 300 labelled rows" in shown
    assert not PYTHON.search(shown), shown
    inspected = call("inspect", again).stdout
    assert "change      'pred_south' was dropped on" in inspected
    assert "change      'pred_south' was added on" in inspected
    model = load(again)
    assert model.notes_["target"] == "rent"
    assert model.candidate_names_ == ("pred_north", "pred_south")
    call("predict", again, folder / "new.csv", "--out", tmp_path / "p.csv")
    pool = tmp_path / "pool.toml"
    pool.write_text('[south]\ncolumn = "pred_south"\n')
    told = call("add", small, folder / "train.csv", "--models", pool, "--out", best, "--json")
    assert list(json.loads(told.stdout)["candidates"]) == ["pred_north", "south"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("drop", "pred_sout"), 1, "Unknown candidate 'pred_sout'; did you mean 'pred_south'"),
        (("add", "train.csv"), 2, "Name the column of new predictions with --predictions"),
        (("add", "train.csv", "--predictions", "area2"), 2, "area2"),
        (("add", "train.csv", "--predictions", "pred_south"), 1, "'pred_south' occurs 2 times"),
        (("add", "train.csv", "--predictions", "area,rooms"), 2, "Name one new candidate"),
        (("add", "new.csv", "--predictions", "area"), 2, "rent"),
    ],
)
def test_wrong_changes_write_nothing(folder, tmp_path, arguments, code, words):
    command, first, *others = arguments
    where = folder / first if command == "add" else first
    out = tmp_path / "x.localma"
    result = call(command, folder / "rent.localma", where, *others, "--out", out, code=code)
    assert words in result.output + str(result.exception)
    assert not out.exists()


def test_inspect_takes_hostile_descriptions(tmp_path):
    from localma.storage import array_file

    path = tmp_path / "model.localma"
    X = np.c_[np.linspace(0, 1, 20), np.full(20, 0.5)]
    LocalMARegressor({"a": Column(1)}, gate="equal").fit(X, X[:, 0]).save(path)
    file = array_file.read(path)
    for change in (
        {"candidates": [[], {"name": 3, "recipe": {"kind": ["x"]}}, {"recipe": 5}]},
        {"candidates": [{"name": "a", "recipe": None}] * 1_000},
        {"evidence": {"cautions": [None, {"sentence": ["\x1b"]}]}},
        {"loss": {}, "gate": {}, "notes": {"a": [1], "\ud800": "\x9b2J\u202e"}},
        {"evidence": {"cautions": 3}},
    ):
        description = file.description | change
        path.write_bytes(array_file.to_bytes(description, file.arrays))
        shown = call("inspect", path).stdout
        assert not {"\x1b", "\x9b", "\u202e"} & set(shown + call("inspect", path, "--json").stdout)
        assert len(shown) < 20_000


def with_year(table):
    """The same rows with a year that rises, as in a table that grows at its end."""
    years = 2015 + 6 * np.arange(len(table)) // len(table)
    return table.append_column("year", pa.array(years))


def fit_in(folder, table, *options):
    csv.write_csv(table, folder / "t.csv")
    out = folder / "m.localma"
    arguments = ["fit", folder / "t.csv", "--target", "rent", "--predictions", "pred_*"]
    words = call(*arguments, "--out", out, *options).output.replace("\n", " ")
    seen = [column.name for column in load(out).gate_features_.transformer.columns_]
    return words, seen


def test_numbers_that_follow_the_rows_are_left_out_and_named(tmp_path):
    table = with_year(make_table(120).select(["area", "pred_north", "pred_south", "rent"]))
    words, seen = fit_in(tmp_path, table, "--gate", "global")
    assert seen == ["area"]
    assert "does not see 'year': its values follow the order of the rows" in words
    assert "name the columns with --features" in words
    _, seen = fit_in(tmp_path, table, "--gate", "global", "--features", "year,area")
    assert seen == ["year", "area"]


def test_a_table_sorted_by_its_only_column_keeps_it(tmp_path):
    table = make_table(60).select(["area", "pred_north", "pred_south", "rent"]).sort_by("area")
    _, seen = fit_in(tmp_path, table, "--gate", "global")
    assert seen == ["area"]


def test_evaluate_asks_about_a_gap_and_tells_the_support(inside, tmp_path):
    words = " ".join(call("evaluate", "rent.localma", "test.csv", "--no-control").output.split())
    assert "Mean support of the rows: 1.00." in words
    assert "Was it trained" not in words
    rng = np.random.default_rng(0)
    table = make_table(300)
    rent = table["rent"].to_numpy()
    memorised = table.append_column("pred_forest", pa.array(rent + rng.normal(0, 300, 300)))
    fit_in(tmp_path, memorised, "--gate", "global")
    table = make_table(300, seed=1)
    rent = table["rent"].to_numpy()
    new = table.append_column("pred_forest", pa.array(rent + rng.normal(0, 900, 300)))
    csv.write_csv(new, tmp_path / "new.csv")
    arguments = ["evaluate", tmp_path / "m.localma", tmp_path / "new.csv", "--no-control"]
    told = call(*arguments)
    words = " ".join(told.stdout.split())
    assert "pred_forest: " in words
    assert "here. Was it trained on them?" in words
    assert not told.stderr
    (gap,) = json.loads(call(*arguments, "--json").stdout)["gaps"]
    assert gap["name"] == "pred_forest"


@pytest.mark.parametrize("gate", ["global", "auto"])
def test_fit_names_a_model_that_was_trained_on_the_table(folder, tmp_path, gate):
    (tmp_path / "memorising.py").write_text(
        "import numpy as np\n"
        "from sklearn.tree import DecisionTreeRegressor\n"
        "import pyarrow.csv as csv\n"
        f"train = csv.read_csv({str(folder / 'train.csv')!r})\n"
        "area = np.asarray(train['area'])[:, None]\n"
        "tree = DecisionTreeRegressor(random_state=0).fit(area, np.asarray(train['rent']))\n"
        "def predict(table):\n"
        "    return tree.predict(np.asarray(table['area'])[:, None])\n"
    )
    (tmp_path / "pool.toml").write_text(
        '[tree]\nimport = "memorising:predict"\n[south]\ncolumn = "pred_south"\n'
    )
    fitted = program(
        "fit", folder / "train.csv", "--target", "rent", "--models", tmp_path / "pool.toml",
        "--features", "area", "--out", tmp_path / "m.localma", "--trust", "--gate", gate,
    )  # fmt: skip
    assert fitted.returncode == 0, fitted.stderr
    words = " ".join(fitted.stdout.split())
    assert words.count("'tree' seems to have been trained on the labelled rows") == 1
    assert not fitted.stderr
