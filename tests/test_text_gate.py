"""Gates over texts: fine-tuned and frozen encoders, in folders that may move, change or be gone."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
from sklearn.base import clone

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("transformers")

from localma import LocalMAClassifier, LocalMARegressor, as_candidate, load  # noqa: E402
from localma.equations import local_average  # noqa: E402
from localma.errors import FileFormatError, InvalidInputError, UntrustedFileError  # noqa: E402
from localma.gates import Job, Labelled, MLPGate, ShrunkGate, TextGate  # noqa: E402
from localma.losses import squared_error  # noqa: E402
from tests.tiny_models import real_data, tiny_encoder, write_encoder  # noqa: E402

HEAD = MLPGate((8,), n_steps=100)
QUICK = {"n_epochs": 8, "batch_size": 32, "learning_rate": 0.01, "patience": 8}


def problem(n=60, seed=0):
    """Good days, of which the first candidate knows, and bad ones, which the second knows."""
    rng = np.random.default_rng(seed)
    good = rng.uniform(size=n) < 0.5
    texts = [
        f"{'good' if one else 'bad'} day {'w1 ' * rng.integers(5)}{'w2 ' * rng.integers(5)}"
        for one in good
    ]
    P = np.stack([good, ~good], axis=1)[:, :, None].astype(float)
    return texts, P, np.ones((n, 1))


def risk(gate, X, P, y):
    return float(((y - local_average(gate.predict_weights(X), P)) ** 2).mean())


def fit(gate, X, P, y):
    return gate.fit(Labelled.of(X, P, y, loss=squared_error()))


def frozen(**keywords):
    return TextGate(tiny_encoder(), frozen=True, **{"head": HEAD, "random_state": 0} | keywords)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_frozen_features_learn_what_the_candidates_know(pooling):
    X, P, y = problem()
    gate = fit(frozen(pooling=pooling), X, P, y)
    assert risk(gate, X, P, y) < 0.05
    assert gate.inner_.n_features_in_ == 16


def test_fine_tuning_learns_it_too():
    X, P, y = problem()
    gate = fit(TextGate(tiny_encoder(), random_state=0, **QUICK), X, P, y)
    assert risk(gate, X, P, y) < 0.05


def test_shrinkage_pulls_fine_tuning_to_the_encoder_as_it_was():
    X, P, y = problem()
    gate = TextGate(tiny_encoder(), shrinkage=1e9, random_state=0, n_epochs=1, learning_rate=1e-6)
    trained = fit(gate, X, P, y).inner_.network_.module.encoder.state_dict()
    from localma.gates.deep.encoders import read_encoder

    for name, value in read_encoder(tiny_encoder(), 128, with_weights=True).state_dict().items():
        torch.testing.assert_close(trained[name], value, atol=1e-4, rtol=0)


def test_mean_pooling_leaves_padding_out():
    gate = frozen()
    X, P, y = problem()
    alone = fit(gate, X, P, y)._features
    together = alone.encoder.batch(["good day", "bad " * 40], [0, 1])
    with torch.inference_mode():
        both = alone.encoder.network(**together)
        one = alone.encoder.network(**alone.encoder.batch(["good day"], [0]))
    torch.testing.assert_close(both[:1], one, atol=1e-5, rtol=0)
    words = alone.encoder.network.encoder(**alone.encoder.batch(["good day"], [0]))
    torch.testing.assert_close(one, words.last_hidden_state.mean(dim=1))


def test_texts_may_come_in_any_container():
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    X, P, y = problem(20)
    gate = fit(frozen(), X, P, y)
    expected = gate.predict_weights(X)
    for other in (
        tuple(X),
        np.array(X),
        np.array(X, dtype=object)[:, None],
        pandas.Series(X, index=range(7, 27)),
        pandas.DataFrame({"text": X, "other": 1}),
        datasets.Dataset.from_dict({"text": X, "label": [0] * 20}),
        datasets.Dataset.from_dict({"sentence": X}),
    ):
        np.testing.assert_allclose(gate.predict_weights(other), expected, atol=1e-6)


def test_features_are_computed_once_for_all_jobs_and_all_predictions():
    X, P, y = problem()
    X = [f"w5 w6 {text}" for text in X]  # texts that no other test has
    gate, seen = frozen(), []
    jobs = [Job(rows, s, 0) for rows in (np.arange(40), None) for s in (0.1, 0.001)]
    gate.fit_jobs(Labelled.of(X[:1], P[:1], y[:1], loss=squared_error()), [Job(None, 1.0, 0)])
    gate._features.encoder.network.register_forward_hook(
        lambda module, inputs, output: seen.append(len(output))
    )
    fitted = gate.fit_jobs(Labelled.of(X, P, y, loss=squared_error()), jobs)
    for one in fitted:
        one.predict_weights(X)
    assert sum(seen) == len(set(X)) - 1


def test_empty_text_is_a_text():
    X, P, y = problem()
    for gate in (frozen(), TextGate(tiny_encoder(), random_state=0, **QUICK | {"n_epochs": 1})):
        fit(gate, ["", *X[1:]], P, y)
        weights = gate.predict_weights(["", "  ", "good day"])
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
        np.testing.assert_allclose(weights[0], weights[1], atol=1e-6)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (["a", None, "b"], r"must be a string; row 1 is None, a NoneType"),
        (["a", "b", float("nan")], r"row 2 is nan, a float"),
        ([1, 2, 3], r"row 0 is 1, a int"),
    ],
)
def test_what_is_no_text_is_refused(X, message):
    _, P, y = problem(3)
    with pytest.raises(InvalidInputError, match=message):
        fit(frozen(), X, P, y)


def test_table_of_several_columns_is_refused():
    pandas = pytest.importorskip("pandas")
    X, P, y = problem(3)
    with pytest.raises(InvalidInputError, match=r"received the columns \['a', 'b'\]"):
        fit(frozen(), pandas.DataFrame({"a": X, "b": X}), P, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pooling": "max"}, "Unknown pooling 'max'"),
        ({"max_length": 0}, "max_length of TextGate must be a positive integer"),
        (
            {"max_length": 1000},
            "at most the length that the encoder can read, 160 tokens; received 1000",
        ),
        ({"encoder": "./gone"}, r"There is no folder '\./gone'"),
    ],
)
@pytest.mark.parametrize("is_frozen", [True, False])
def test_parameters_are_checked(parameters, message, is_frozen):
    X, P, y = problem(20)
    gate = TextGate(tiny_encoder(), frozen=is_frozen).set_params(**parameters)
    with pytest.raises(InvalidInputError, match=message):
        fit(gate, X, P, y)


def test_a_name_that_the_hub_does_not_answer_for(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    X, P, y = problem(20)
    with pytest.raises(
        InvalidInputError, match=r"'nobody/nothing' is not a folder, and the Hugging Face hub"
    ):
        fit(TextGate("nobody/nothing"), X, P, y)


def test_spoilt_folders_are_named(tmp_path):
    X, P, y = problem(20)
    folder = write_encoder(tmp_path / "encoder")
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError, match=r"encoder' cannot be read as an encoder"):
        fit(TextGate(folder, frozen=True), X, P, y)
    from safetensors.torch import load, save_file

    state = {name: value for name, value in load(whole).items() if "query" not in name}
    save_file(state, weights, metadata={"format": "pt"})
    with pytest.raises(InvalidInputError, match=r"the weights lack .*query"):
        fit(TextGate(folder, frozen=True), X, P, y)
    (folder / "config.json").unlink()
    with pytest.raises(InvalidInputError, match=r"It must hold config\.json"):
        fit(TextGate(folder), X, P, y)


def test_long_texts_are_cut():
    X, P, y = problem(20)
    gate = fit(frozen(max_length=4), X, P, y)
    np.testing.assert_allclose(*gate.predict_weights(["good day w1", "good day w2 w3"]), atol=1e-6)
    np.testing.assert_array_less(
        1e-6,
        np.abs(np.diff(fit(frozen(), X, P, y).predict_weights(["good day w1", "good w2"]), axis=0)),
    )


@pytest.mark.parametrize("is_frozen", [True, False])
def test_state_comes_back_from_arrays(is_frozen):
    X, P, y = problem()
    gate = TextGate(tiny_encoder(), frozen=is_frozen, head=HEAD, random_state=0, **QUICK)
    fitted = fit(clone(gate), X, P, y)
    again = clone(gate).restore(fitted.arrays())
    np.testing.assert_array_equal(again.predict_weights(X), fitted.predict_weights(X))
    pickled = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(pickled.predict_weights(X), fitted.predict_weights(X), atol=1e-6)


@pytest.mark.filterwarnings("ignore::localma.errors.WorseThanConstantWarning")  # y is constant
@pytest.mark.parametrize("is_frozen", [True, False])
def test_saved_models_find_their_encoder_or_say_what_is_wrong(is_frozen, tmp_path):
    X, P, y = problem(40)
    folder = write_encoder(tmp_path / "encoder")
    gate = TextGate(folder, frozen=is_frozen, head=HEAD, random_state=0, **QUICK | {"n_epochs": 1})
    model = LocalMARegressor(gate=gate, random_state=0)
    model.fit(X, y.ravel(), predictions=P[:, :, 0])
    file = tmp_path / "model.localma"
    model.save(file)
    expected = model.predict_weights(X)
    with pytest.raises(UntrustedFileError, match=r"TextGate of this file opens encoder='encoder'"):
        load(file, candidates={})
    again = load(file, candidates={}, trust=True)
    np.testing.assert_array_equal(again.predict_weights(X), expected)
    assert str(tmp_path).encode() not in file.read_bytes()
    moved = folder.rename(tmp_path / "moved")
    with pytest.raises(InvalidInputError, match=r"encoder of .*TextGate is not at 'encoder'"):
        load(file, candidates={}, trust=True)
    back = load(file, candidates={}, gate=clone(gate).set_params(encoder=moved))
    np.testing.assert_array_equal(back.predict_weights(X), expected)
    write_encoder(folder, seed=1)
    if is_frozen:
        with pytest.raises(FileFormatError, match=r"encoder='.*encoder'.* has changed since"):
            load(file, candidates={}, trust=True)
    else:  # what was trained is in the file; words and sizes are as they were
        np.testing.assert_array_equal(
            load(file, candidates={}, trust=True).predict_weights(X), expected
        )
    words = (folder / "vocab.txt").read_text().split("\n")
    (folder / "vocab.txt").write_text("\n".join([*words[:5], *words[:4:-1]]))
    with pytest.raises(FileFormatError, match="has changed since"):
        load(file, candidates={}, trust=True)


def test_an_encoder_that_changes_under_a_fitted_gate_is_noticed(tmp_path):
    X, P, y = problem(20)
    folder = write_encoder(tmp_path / "encoder")
    gate = fit(TextGate(folder, frozen=True, head=HEAD), X, P, y)
    there = pickle.dumps(gate)
    shutil.rmtree(folder)
    write_encoder(folder, seed=1)
    with pytest.raises(FileFormatError, match="has changed since"):
        pickle.loads(there).predict_weights(X)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_shrunk_gate_wraps_it(is_frozen):
    X, P, y = problem(80)
    base = TextGate(tiny_encoder(), frozen=is_frozen, head=HEAD, **QUICK)
    shrunk = ShrunkGate(base, cv=2, strengths=(0.1,), n_restarts=1, random_state=0)
    fit(shrunk, X, P, y)
    assert risk(shrunk, X, P, y) < 0.2
    again = clone(shrunk).restore(shrunk.arrays())
    np.testing.assert_allclose(again.predict_weights(X), shrunk.predict_weights(X), atol=1e-6)


def test_classifier_over_texts():
    X, _, _ = problem(60)
    labels = np.array(["long" if len(text) > 20 else "short" for text in X])

    def knows(word):
        def probability_of_short(texts):
            short = np.array([len(text) <= 20 for text in texts])
            here = np.array([text.startswith(word) for text in texts])
            return np.where(here, np.where(short, 0.95, 0.05), 0.5)

        return as_candidate(probability_of_short, classes=["long", "short"])

    candidates = {"good": knows("good"), "bad": knows("bad")}
    model = LocalMAClassifier(candidates, gate=frozen(), random_state=0).fit(X, labels)
    assert model.predict_weights(["good day", "bad day"]).argmax(axis=1).tolist() == [0, 1]
    assert model.score(X, labels) > 0.95


def test_a_real_encoder_knows_what_words_mean():
    folder = real_data("text_encoder")
    if folder is None:
        pytest.skip("the encoder is not in LOCALMA_DATA")
    X = ["I love this", "what a wonderful day", "great work", "I hate this", "awful", "so bad"]
    P = np.repeat(np.eye(2), 3, axis=0)[:, :, None]
    gate = TextGate(folder, frozen=True, head=HEAD, max_length=16, random_state=0)
    fit(gate, X, P, np.ones((6, 1)))
    assert gate.inner_.n_features_in_ == 384
    assert gate.predict_weights(["lovely", "terrible"]).argmax(axis=1).tolist() == [0, 1]
