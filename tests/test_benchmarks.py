"""Each benchmark in miniature: its figures are there, and a wrong fit does not count."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import (
    auto,
    engine,
    growth,
    memory,
    peers,
    pictures,
    predict,
    production,
    reference,
    scale,
    sizes,
    start,
)
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.data import classification, regression
from benchmarks.peers import Peer, PeerFailedError, PeerMissingError, install, interpreter
from benchmarks.report import Report, Row
from benchmarks.timing import interleave
from localma.errors import InvalidInputError
from localma.gates import Labelled, MLPGate, ShrunkGate

TORCH = find_spec("torch") is not None
NO_ENVIRONMENTS = Path(__file__).parent / "no-such-folder"
TINY_ENGINE = engine.Size(fits=2, pytorch_fits=1, checked=2, repeats=1, rows=(60, 40), n_steps=60)
TINY_AXES = growth.Axes(
    n=(60, 120), p=(2, 4), M=(2, 3), hidden=(4, 8), classes=(2, 5), base_n=60, n_steps=10, repeats=1
)
TINY_GATE = ShrunkGate(MLPGate((4,), n_steps=20, random_state=0), linear=False)


@pytest.fixture(autouse=True)
def _no_peers(monkeypatch):
    """Peers of a developer's machine would make the tests slow, and different elsewhere."""
    monkeypatch.setattr(peers, "ENVIRONMENTS", NO_ENVIRONMENTS)


@pytest.fixture
def _small_products(monkeypatch):
    monkeypatch.setattr(engine, "SGEMM_SIZE", 128)


def test_interleaved_works_take_turns():
    turns = []
    timings = interleave({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 2)
    assert turns == ["a", "b", "a", "b"]
    assert len(timings["a"].seconds) == 2
    assert timings["a"].median == np.median(timings["a"].seconds)


@pytest.mark.parametrize(
    ("risk", "reference_risk", "weaker", "counts"),
    [
        (1.009, 1.0, False, True),
        (0.991, 1.0, False, True),
        (1.011, 1.0, False, False),
        (0.989, 1.0, False, False),
        (0.5, 1.0, True, True),
        (1.011, 1.0, True, False),
        (float("nan"), 1.0, False, False),
        (1.0, None, False, None),
    ],
)
def test_a_row_counts_within_one_percent(risk, reference_risk, weaker, counts):
    row = Row("w", "n", [1.0], risk, reference_risk, reference_is_weaker=weaker)
    assert row.counts is counts


def test_a_ratio_needs_rows_that_count():
    report = Report()
    right, wrong = Row("w", "right", [4.0], 1.0, 1.0), Row("w", "wrong", [2.0], 2.0, 1.0)
    report.ratio("good", right, right)
    report.ratio("bad", right, wrong)
    assert report.figures == {"good": 1.0, "bad": None}
    assert "not within 1 % of the float64 reference: wrong" in report.reasons["bad"]


@pytest.mark.parametrize(
    "gate",
    [
        MLPGate.paper((4,), random_state=3),
        MLPGate((4, 3), random_state=3, n_restarts=2),
        MLPGate((2,), activation="identity", shrinkage=0.1, random_state=3),
    ],
)
def test_reference_is_the_twin_of_the_gate(gate):
    problem = regression(100, 3, 3, seed=1, n_test=50)
    train, X = problem.train, problem.test.X
    gate.set_params(n_steps=100).fit(Labelled.of(train.X, train.P, train.y, loss=train.loss))
    twin = reference.fit_weights(gate, train, X)
    np.testing.assert_allclose(twin, gate.predict_weights(X), atol=2e-3)
    np.testing.assert_allclose(
        reference.evaluate_weights(gate, X), gate.predict_weights(X), atol=1e-5
    )


def test_reference_under_cross_entropy():
    sample = classification(100, 3, 2, n_classes=4, seed=0).observed()
    gate = MLPGate.paper((4,), random_state=0).set_params(n_steps=50)
    gate.fit(Labelled.of(sample.X, sample.P, sample.y, loss=sample.loss))
    twin = reference.fit_weights(gate, sample, sample.X)
    np.testing.assert_allclose(twin, gate.predict_weights(sample.X), atol=2e-3)


@pytest.mark.usefixtures("_small_products")
def test_engine_figures():
    result = engine.measure(TINY_ENGINE).as_dict()
    assert result["ratio_to_jax"] is None or find_spec("jax")
    assert result["fraction_of_sgemm"] > 0.0
    for key in ("ratio_to_pytorch_loop", "ratio_to_pytorch_loop_n40"):
        assert result[key] > 1.0 if TORCH else "torch is not installed" in result["reasons"][key]
    assert all(row["within_1_percent"] for row in result["rows"] if row["reference"] is not None)
    assert engine.Size().rows[1] == 100  # so the figure of a real run ends in n100


@pytest.mark.usefixtures("_small_products")
def test_engine_does_not_count_a_wrong_fit(monkeypatch):
    def too_short(fits):
        return [
            MLPGate((4,), n_steps=1, shrinkage=0.0).fit(
                Labelled.of(
                    problem.train.X, problem.train.P, problem.train.y, loss=problem.train.loss
                )
            )
            for problem in fits.problems
        ]

    right, calls = engine.fit_all, []

    def right_for_the_reference_only(fits):
        calls.append(1)
        return right(fits) if len(calls) % 2 == 1 else too_short(fits)

    monkeypatch.setattr(engine, "fit_all", right_for_the_reference_only)
    result = engine.measure(replace(TINY_ENGINE, rows=(200, 100))).as_dict()
    ours = [row for row in result["rows"] if row["name"] == "localma"]
    assert [row["within_1_percent"] for row in ours] == [False, False]
    assert result["ratio_to_pytorch_loop"] is None


def test_start_figures():
    result = start.measure(1).as_dict()
    assert 0.1 < result["import_ratio"] < 10.0
    assert result["first_fit_seconds"] > 1.0  # it compiles; a cached kernel takes milliseconds
    assert result["first_predict_seconds"] > 0.0


def test_arithmetic_is_counted_as_stated():
    fits = engine.Fits.draw(replace(TINY_ENGINE, fits=3), 900)
    assert fits.flops() == 3 * 60 * 2 * 900 * (2 * 5 * 16 + 3 * 16 * 3)


def test_auto_figures():
    result = auto.measure(auto.Size(n=60, pytorch_fits=1, repeats=1)).as_dict()
    if TORCH:
        assert 0.0 < result["ratio_auto_to_eight_pytorch_fits"] < 1.0
    else:
        assert "torch" in result["reasons"]["ratio_auto_to_eight_pytorch_fits"]


def test_predict_figures():
    size = predict.Size(
        one_row_repeats=20, labelled=100, rows=200, n_inputs=3, n_candidates=3, repeats=1,
        gate=TINY_GATE,
    )  # fmt: skip
    result = predict.measure(size).as_dict()
    for key in (key for key in pictures.AIMS["predict"] if key.startswith("one_row")):
        assert 0.0 < result[key] < 1e5
    timed = [row for row in result["rows"] if row["reference"] is not None]
    assert len(timed) == 7
    assert all(row["within_1_percent"] for row in timed)
    assert "python -m benchmarks peers deskit" in result["reasons"]["ratio_deskit_to_predict"]
    assert result["ratio_deslib_to_predict"] is None


def test_scale_figures(monkeypatch):
    monkeypatch.setattr(memory, "measure", lambda n, p, M: {"n": n, "skipped": "in this test"})
    size = scale.Size(
        axes=TINY_AXES, global_n=500, global_M=4, global_repeats=1, auto_n=(60, 120), n_inputs=3,
        n_candidates=2, reference_rows=60, memory_n=(10,), gate=TINY_GATE,
    )  # fmt: skip
    result = scale.measure(size).as_dict()
    assert set(result["growth"]) == {"n", "p", "M", "hidden", "classes"}
    assert result["ratio_global_to_nnls"] > 0.0
    assert result["global_gap"] <= 1e-8
    assert {"ratio_auto_to_hist_gradient_boosting", "ratio_time_per_row_120_to_60"} <= set(result)
    assert "| `exponent_in_classes` | " in pictures.table({"benchmark": "scale"} | result)
    assert set(result["axes_worse_than_linear"]) <= set(growth.LINEAR_AXES)


def test_nnls_finds_the_weights_on_the_simplex():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(300, 3))
    weights = scale.nnls_weights(P, P @ [0.25, 0.75, 0.0] + 1e-3 * rng.normal(size=300))
    np.testing.assert_allclose(weights, [0.25, 0.75, 0.0], atol=1e-3)


def test_exponent_is_that_of_the_larger_half():
    assert growth.exponent([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]) == pytest.approx(2.0)
    assert growth.fitted_law([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]) == pytest.approx((2.0, 1.0))


def test_memory_is_measured_in_a_child():
    held_by_the_parent = np.ones(2**25)  # 256 MiB, which must not hide what the child needs
    n, p, M = 60_000, 8, 4
    peak = memory.measure(n, p, M)
    assert held_by_the_parent.all()
    assert peak["input_mib"] == pytest.approx(n * 4 * (p + M + 1) / 2**20)
    packed = 4 * n * (p + M + 2) / 2**20  # what the kernel reads, in single precision
    assert packed < peak["peak_beyond_input_mib"] < 1024


def test_memory_skips_what_does_not_fit():
    assert "would need about" in memory.measure(10**12, 5, 2)["skipped"]


def peer_script(tmp_path, body):
    script = tmp_path / "script.py"
    path = f"import sys; sys.path.insert(0, {str(peers.SCRIPTS)!r})\nfrom serving import serve\n"
    script.write_text(path + body)
    return script


def test_a_peer_works_when_told(tmp_path):
    body = "print('noise')\nserve(lambda a: lambda: {'twice': 2 * a['x']})\n"
    script = peer_script(tmp_path, body)
    peer = Peer(Path(sys.executable), script, {"x": np.arange(3)})
    peer.run()
    peer.run()
    assert peer.close()["twice"].tolist() == [0, 2, 4]


def test_a_peer_answers_for_new_arrays_in_the_same_process(tmp_path):
    body = "import os\nserve(lambda a: lambda: {'twice': 2 * a['x'], 'process': os.getpid()})\n"
    peer = Peer(Path(sys.executable), peer_script(tmp_path, body), {"x": np.arange(3)})
    first, second = (peer.answer({"x": np.arange(n)}) for n in (2, 4))
    assert first["twice"].tolist() == [0, 2]
    assert second["twice"].tolist() == [0, 2, 4, 6]
    assert first["process"] == second["process"]
    peer.close()


def test_a_peer_does_not_see_the_packages_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "others"))
    body = "serve(lambda a: lambda: {'path': sys.path})\n"
    peer = Peer(Path(sys.executable), peer_script(tmp_path, body), {})
    path = peer.answer({})["path"].tolist()
    assert str(tmp_path) in path
    assert str(tmp_path / "others") not in path
    peer.close()


def test_a_peer_that_fails_shows_its_error(tmp_path):
    script = peer_script(tmp_path, "raise RuntimeError('no such luck')\n")
    with pytest.raises(PeerFailedError, match="no such luck"):
        Peer(Path(sys.executable), script, {})


def test_an_absent_peer_says_how_to_have_it():
    with pytest.raises(PeerMissingError, match="python -m benchmarks peers no_such_peer"):
        interpreter("no_such_peer")


def test_an_unknown_peer_is_refused():
    with pytest.raises(InvalidInputError, match="Unknown peer 'jaxx'; did you mean 'jax'"):
        install(["jaxx"])


@pytest.fixture
def trivial(monkeypatch):
    """Benchmarks that only count how often they ran."""
    ran = []
    for name in BENCHMARKS:
        monkeypatch.setitem(
            BENCHMARKS,
            name,
            lambda quick, name=name: ran.append(name) or Report(figures={"quick_was": quick}),
        )
    return ran


@pytest.mark.usefixtures("trivial")
def test_one_is_stored_flat_with_machine_and_versions(tmp_path):
    main(["engine", "--quick", "--json", str(tmp_path / "one.json")])
    one = json.loads((tmp_path / "one.json").read_text())
    assert one["quick_was"] is True
    assert one["machine"]["cores"] >= 1
    assert "numpy" in one["machine"]["versions"]


def test_all_are_stored_part_by_part_and_go_on(tmp_path, monkeypatch, capsys, trivial):
    path = tmp_path / "all.json"
    works = BENCHMARKS["predict"]

    def interrupted(quick):
        raise KeyboardInterrupt

    monkeypatch.setitem(BENCHMARKS, "predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(["--json", str(path)])
    assert list(json.loads(path.read_text())) == ["engine", "auto"]
    monkeypatch.setitem(BENCHMARKS, "predict", works)
    main(["--json", str(path)])
    assert trivial == list(BENCHMARKS)
    main(["all", "--json", str(path), "--again", "auto"])
    assert trivial[len(BENCHMARKS) :] == ["auto"]
    main(["--json", str(path), "--again"])
    assert trivial[len(BENCHMARKS) + 1 :] == list(BENCHMARKS)
    capsys.readouterr()
    main(["table", str(path)])
    missing = "| `ratio_to_jax` | not measured at this size | at least 6 | not measured |"
    assert missing in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["all.json"]


def test_a_full_run_is_published(tmp_path, monkeypatch, trivial):
    pytest.importorskip("matplotlib")
    page = tmp_path / "README.md"
    page.write_text(f"before\n{pictures.BEGIN}\nold\n{pictures.END}\nafter\n")
    monkeypatch.setattr(command, "HOME", tmp_path)
    monkeypatch.setattr(command, "README", page)
    monkeypatch.setattr(command, "PICTURES", tmp_path / "pictures")
    main([])
    assert len(list((tmp_path / "results").iterdir())) == 1
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| `global_gap` | not measured at this size | at most 1e-08 | not measured |" in text
    assert pictures.BEGIN in (Path(command.__file__).parent / "README.md").read_text()


@pytest.mark.parametrize(
    ("value", "reached"), [(60.0, "yes"), (59.0, "**no**"), (None, "not measured")]
)
def test_the_table_says_what_is_reached(value, reached):
    stored = {"benchmark": "engine", "reasons": {}, "ratio_to_pytorch_loop": value}
    assert pictures.table(stored).splitlines()[2].endswith(f"| at least 60 | {reached} |")


def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    line = {"values": [1, 2, 4], "seconds": [1.0, 2.0, 4.0]}
    fitted = {"exponent": 1.0, "factor": 1.0, "fitted_to": [2, 4]}
    failed = line | {"seconds": [1.0, None, 4.0], "exponent": None}
    row = Row("fit", "localma", [0.5]).as_dict()
    growing = {"n": line | fitted, "p": failed}
    stored = {"benchmark": "scale", "reasons": {}, "growth": growing, "rows": [row]}
    drawn = pictures.draw(stored, tmp_path)
    assert [path.name for path in drawn] == ["growth-n.svg", "growth-p.svg", "times-scale.svg"]
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_sizes_gives_every_figure_of_its_aims():
    small = sizes.Size(
        n=(60, 80), compared=(80,), kinds=(80,), n_inputs=3, repeats=1, wide=(60, 5, 2)
    )
    found = sizes.measure(small)
    figures = found.figures
    for name in ("to_boosting", "of_own", "of_trees"):
        assert figures[f"ratio_processor_time_{name}_80"] > 0
    lightgbm = "ratio_processor_time_to_lightgbm_80"
    assert figures[lightgbm] or "peers lightgbm installs it" in found.reasons[lightgbm]
    assert 0 <= figures["largest_fall_of_processor_time"] < 1
    assert figures["ratio_wide_to_ridge"] > 0
    full = sizes.Size()
    compared = {
        f"ratio_processor_time_to_{rival}_{n}"
        for n in full.compared
        for rival in ("boosting", "lightgbm")
    }
    kinds = {f"ratio_processor_time_of_{kind}_{n}" for kind in sizes.KINDS for n in full.kinds}
    other = {"largest_fall_of_processor_time", "ratio_wide_to_ridge"}
    assert set(pictures.AIMS["sizes"]) == compared | kinds | other


@pytest.mark.slow
def test_production_gives_every_figure_of_its_aims():
    figures = production.run(quick=True).figures
    assert set(figures) == set(pictures.AIMS["production"])
    assert figures["failing_candidates_named"] == 3
    assert figures["share_of_equal_answers_by_16_threads"] == 1


def test_a_figure_without_an_aim_is_shown():
    stored = {"benchmark": "sizes", "reasons": {}, "ratio_processor_time_to_lightgbm_100": 2.5}
    line = "| `ratio_processor_time_to_lightgbm_100` | 2.5 | none |  |"
    assert line in pictures.table(stored).splitlines()


def test_the_table_has_the_benchmarks_with_files_of_their_own(tmp_path):
    one = {"p50 of ours over bare": 1.25, "p50 of ours over bare in the loop": 1.5}
    latency = {"linear": one | {"ours": {"requests_per_second": 900.0}}}
    load = {"wrong": 0, "no_answer": 2}
    memory_used = {"MiB": {"whole 1": 9.0, "each 1": 3.0}, "bound_of_each_MiB": 4.0}
    serving = {"latency": latency, "overload": {"trees": {"16 connections": load}}}
    (tmp_path / "serving.json").write_text(json.dumps(serving))
    ray = {"predict": {"median_ratio": 1.1}, "memory": memory_used}
    (tmp_path / "ray.json").write_text(json.dumps(ray))
    lines = pictures.table(pictures.separate(tmp_path)).splitlines()
    for line in (
        "| `p50_over_bare_service_linear` | 1.25 | at most 1.3 | yes |",
        "| `p50_over_bare_service_linear_in_loop` | 1.5 | at most 1.3 | **no** |",
        "| `requests_per_second_linear` | 900 | none |  |",
        "| `wrong_or_missing_answers_under_overload` | 2 | at most 0 | **no** |",
        "| `ratio_ray_to_processes_predict` | 1.1 | at most 1.15 | yes |",
        "| `object_store_over_its_bound` | 0.75 | at most 1 | yes |",
    ):
        assert line in lines
    assert pictures.separate(tmp_path / "none") == {}
