"""A text classifier of transformers: a tiny random BERT, made here, and the real encoder."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from localma import LocalMAClassifier, as_candidate, load
from localma.candidates import Pool, Recipe, from_recipe
from localma.candidates.files.transformers import TransformersCandidate, _limit, _Network
from localma.errors import CandidateError, FileFormatError, InvalidInputError
from localma.pretrained import import_transformers, model_folder, quiet, torchvision_failure
from tests.tiny_candidates import write_text_classifier
from tests.tiny_models import real_data

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TEXTS = ["good rent", "bad", "the rent in the north is high high high", "low rent", "south is bad"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_classifier(tmp_path_factory.mktemp("models") / "rents", ["no", "yes"])


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "rents"))


@pytest.fixture(scope="module")
def expected(folder: Path) -> np.ndarray:
    """Probabilities of each text on its own, without padding, by transformers alone."""
    transformers = import_transformers()
    with quiet(transformers):
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).float()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = [model(**tokenizer(t, return_tensors="pt")).logits[0] for t in TEXTS]
    return torch.softmax(torch.stack(logits).double(), dim=1).numpy()


def failure(candidate: TransformersCandidate, X: Any, task: Any = "classification") -> str:
    with pytest.raises(CandidateError) as caught:
        candidate.predict(X, task, name="tone")
    return str(caught.value)


# --- texts -------------------------------------------------------------------------------------


def pandas_frame(texts: list[str]) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"id": range(len(texts)), "text": texts}, index=range(9, 9 - 5, -1))


def polars_frame(texts: list[str]) -> Any:
    return pytest.importorskip("polars").DataFrame({"id": range(len(texts)), "text": texts})


def hugging_face(texts: list[str]) -> Any:
    return pytest.importorskip("datasets").Dataset.from_dict({"text": texts, "id": [*range(5)]})


class Pairs(torch.utils.data.Dataset):
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> tuple[str, int]:
        return self.texts[row], 0


CONTAINERS: dict[str, tuple[Callable[[list[str]], Any], Any]] = {
    "list": (list, None),
    "tuple": (tuple, None),
    "objects": (lambda texts: np.array(texts, dtype=object), None),
    "strings": (np.array, None),
    "column": (lambda texts: np.array(texts, dtype=object)[:, None], None),
    "column of two": (lambda texts: np.array([[0, t] for t in texts], dtype=object), 1),
    "pandas": (pandas_frame, "text"),
    "polars": (polars_frame, "text"),
    "pandas series": (lambda texts: pandas_frame(texts)["text"], None),
    "polars series": (lambda texts: polars_frame(texts)["text"], None),
    "Hugging Face": (hugging_face, None),
    "torch": (Pairs, None),
}


@pytest.mark.parametrize("batch_size", ["auto", None, 2])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_texts_of_every_kind(
    folder: Path, expected: np.ndarray, kind: str, batch_size: Any
) -> None:
    contain, inputs = CONTAINERS[kind]
    candidate = TransformersCandidate(folder, inputs=inputs, batch_size=batch_size)
    assert candidate.classes.tolist() == ["no", "yes"]
    assert_allclose(
        candidate.predict(contain(TEXTS), "classification"), expected, rtol=1e-5, atol=1e-7
    )


def test_the_texts_tell_the_predictions_apart(expected: np.ndarray) -> None:
    """Else the order of the rows would be tested by nothing."""
    assert len(np.unique(expected[:, 0].round(4))) == len(TEXTS)


def test_passes_are_sorted_and_keep_the_order(folder: Path, expected: np.ndarray) -> None:
    network: _Network = TransformersCandidate(folder)._network.get()
    passes: list[list[int]] = []
    forward = network._pass

    def watched(tokens: Any) -> Any:
        passes.append([len(pieces) for pieces in tokens["input_ids"]])
        return forward(tokens)

    network._pass = watched  # type: ignore[method-assign]
    two_long_ones = 2 * 11 * network._token_bytes(11)
    many = network.logits(TEXTS * 20, memory=two_long_ones)
    lengths = [length for rows in passes for length in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert len(passes[0]) == 2 < len(passes[-1])
    odds = np.exp(many[:, 1] - many[:, 0])
    assert_allclose(odds / (1 + odds), np.tile(expected[:, 1], 20), rtol=1e-5)


def test_half_precision_runs_in_single(folder: Path) -> None:
    from safetensors.torch import load_file

    stored = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    model = TransformersCandidate(folder)._network.get().model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.training


def test_long_texts_are_cut(folder: Path) -> None:
    candidate = TransformersCandidate(folder)
    long = ["rent " * 14, "rent " * 500]
    same = candidate.predict(long, "classification")
    assert_allclose(same[0], same[1], rtol=1e-5)
    short = TransformersCandidate(folder, max_length=4).predict(
        ["good rent", "good rent is high"], "classification"
    )
    assert_allclose(short[0], short[1], rtol=1e-5)


def test_a_length_beyond_the_network_is_refused(folder: Path) -> None:
    words = failure(TransformersCandidate(folder, max_length=17), TEXTS)
    assert "max_length must be at most 16, the limit of the model in" in words
    assert "; received 17." in words


def test_the_limit_where_the_tokenizer_has_none() -> None:
    class Settings:
        model_max_length = 10**30
        max_position_embeddings: int | None = 514

    class Endless(Settings):
        max_position_embeddings = None

    here = Path()
    assert _limit(Settings(), Settings(), None, here) == 512
    assert _limit(Settings(), Endless(), None, here) is None
    assert _limit(Settings(), Endless(), 4096, here) == 4096


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("", "the text is empty (''), but a text classifier needs one: fill it, or leave the row"),
        (" \n", "the text is empty (' \\n')"),
        (None, "a text must be a string; received None (NoneType): convert it, name the column"),
        (3.5, "a text must be a string; received 3.5 (float)"),
    ],
)
@pytest.mark.parametrize("batch_size", ["auto", 2])
def test_bad_texts_are_named_with_their_row(
    folder: Path, bad: Any, words: str, batch_size: Any
) -> None:
    said = failure(TransformersCandidate(folder, batch_size=batch_size), [*TEXTS[:3], bad])
    assert said.startswith(f"Candidate 'tone', row 3: {words}")
    assert str(folder) in said


def test_batches_before_a_bad_text_are_kept(folder: Path, expected: np.ndarray) -> None:
    candidate = TransformersCandidate(folder, batch_size=2)
    pieces = candidate.in_batches([*TEXTS[:2], "good", ""], "classification", name="tone")
    assert_allclose(next(pieces), expected[:2], rtol=1e-5)
    with pytest.raises(CandidateError, match="row 3: the text is empty"):
        next(pieces)


def test_one_column_only(folder: Path) -> None:
    words = failure(TransformersCandidate(folder), np.array([["a", "b"]], dtype=object))
    assert (
        "one column of X must hold the texts, but X has shape (1, 2): pass the name of that "
        "column, inputs=" in words
    )


# --- classes -----------------------------------------------------------------------------------


def test_classes_can_be_renamed(folder: Path) -> None:
    candidate = TransformersCandidate(folder, classes=[0, 1])
    assert candidate.classes.tolist() == [0, 1]
    with pytest.raises(
        InvalidInputError,
        match=r"classes= must rename the 2 classes in config\.json of .*rents', 'no', 'yes', in "
        r"the same order; received 'a', 'b', 'c'\.",
    ):
        TransformersCandidate(folder, classes=["a", "b", "c"])


def test_a_temperature_is_fitted(folder: Path) -> None:
    candidate = TransformersCandidate(folder)
    labels = ["no", "yes", "no", "yes", "yes"]
    fitted = candidate.calibrated(TEXTS, labels)
    assert fitted.temperature != 1.0
    rows, taken = np.arange(5), [["no", "yes"].index(label) for label in labels]
    before, after = (c.predict(TEXTS, "classification")[rows, taken] for c in (candidate, fitted))
    assert np.log(after).mean() > np.log(before).mean()


def test_one_output_is_a_regression_or_a_logit(tmp_path: Path) -> None:
    write_text_classifier(tmp_path / "price", ["price"])
    price = TransformersCandidate(tmp_path / "price")
    values = price.predict(TEXTS, "regression")
    assert values.shape == (5,)
    second = TransformersCandidate(tmp_path / "price", classes=["no", "yes"])
    assert_allclose(second.predict(TEXTS, "classification")[:, 1], 1 / (1 + np.exp(-values)))


def test_labels_without_names(copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    del config["id2label"], config["label2id"]
    (copied / "config.json").write_text(json.dumps(config))
    assert TransformersCandidate(copied).classes.tolist() == ["LABEL_0", "LABEL_1"]


def test_several_labels_to_a_text_are_refused(copied: Path) -> None:
    change(copied, problem_type="multi_label_classification")
    with pytest.raises(InvalidInputError, match=r"gives several labels to a text, but the prob"):
        TransformersCandidate(copied)


# --- broken folders ----------------------------------------------------------------------------


def change(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def test_a_missing_tokenizer(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    words = failure(TransformersCandidate(copied), TEXTS)
    assert (
        f"Candidate 'tone': The folder '{copied}' has no tokenizer; it must have one of these files"
        in words
    )
    assert "tokenizer.save_pretrained(folder)." in words


def test_a_broken_tokenizer(copied: Path) -> None:
    (copied / "tokenizer.json").write_text("{")
    words = failure(TransformersCandidate(copied), TEXTS)
    assert f"Candidate 'tone': The tokenizer in '{copied}' cannot be read (" in words


def test_a_tokenizer_without_padding(copied: Path) -> None:
    settings = json.loads((copied / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    (copied / "tokenizer_config.json").write_text(json.dumps(settings))
    assert "has no padding token" in failure(TransformersCandidate(copied), TEXTS)


@pytest.mark.parametrize("kept", [4, 200, -10])
def test_weights_that_were_cut_short(copied: Path, kept: int) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InvalidInputError) as caught:
        TransformersCandidate(copied)
    assert f"The weights file '{file}' cannot be read, or was cut short (" in str(caught.value)


def test_weights_that_are_not_there(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    words = failure(TransformersCandidate(copied), TEXTS)
    assert f"The model in '{copied}' cannot be read (OSError: " in words


def test_weights_with_another_number_of_classes(copied: Path) -> None:
    change(copied, id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={})
    words = failure(TransformersCandidate(copied), TEXTS)
    assert (
        f"The weights in '{copied}' do not fit its config.json: 2 tensors have other shapes, such "
        "as classifier.bias, (2,) in place of (3,). Correct id2label, or use" in words
    )


def test_a_missing_head(tmp_path: Path) -> None:
    write_text_classifier(tmp_path / "encoder", ["no", "yes"], head=False)
    with pytest.raises(
        InvalidInputError,
        match=r"encoder' holds a BertModel, but a candidate must be a model for sequence "
        r"classification: fine-tune it for the task first, or use it in TextGate",
    ):
        TransformersCandidate(tmp_path / "encoder")
    change(tmp_path / "encoder", architectures=None)
    words = failure(TransformersCandidate(tmp_path / "encoder"), TEXTS)
    assert (
        "lack 2 tensors of a model for sequence classification, such as classifier.bias, and "
        "would be filled with random numbers: fine-tune" in words
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", r"config\.json' cannot be read \(Expecting property name"),
        ("[1]", r"config\.json' must hold an object; it holds \[1\]\."),
        ('{"id2label": ["no"]}', r"id2label in .*config\.json' must map 0, 1, \.\.\. to labels"),
        ('{"id2label": {"a": "no"}}', r"id2label in .*config\.json' must map 0, 1, \.\.\. to lab"),
    ],
)
def test_a_broken_config(copied: Path, content: str, words: str) -> None:
    (copied / "config.json").write_text(content)
    with pytest.raises(InvalidInputError, match=words):
        TransformersCandidate(copied)


def test_no_folder_and_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match=r"There is no folder '.*nowhere'\. Pass a folder"):
        TransformersCandidate(tmp_path / "nowhere")
    with pytest.raises(InvalidInputError, match=r"There is no folder '\./nowhere'\."):
        TransformersCandidate("./nowhere")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        InvalidInputError,
        match=r"'nobody/nothing' is not a folder, and the Hugging Face hub did not provide a model "
        r"of that name \(.*Check the name and the connection, or pass the folder",
    ):
        TransformersCandidate("nobody/nothing")


@pytest.mark.parametrize("max_length", [0, 2.5, True, "long"])
def test_max_length_is_a_whole_number(folder: Path, max_length: Any) -> None:
    with pytest.raises(
        InvalidInputError, match=r"max_length must be a whole number, 1 or more; rec"
    ):
        TransformersCandidate(folder, max_length=max_length)


# --- recipes, pools and saved models -----------------------------------------------------------


def test_the_recipe_is_the_folder_and_its_fingerprint(folder: Path, expected: np.ndarray) -> None:
    candidate = TransformersCandidate(folder, classes=[0, 1], max_length=12, temperature=2.0)
    recipe = Recipe.from_json(json.loads(json.dumps(candidate.recipe().to_json())))
    assert recipe.path == str(folder)
    assert recipe.needs_trust
    again = from_recipe(recipe)
    assert again.recipe() == recipe
    assert again.identity() == candidate.identity()
    assert_array_equal(
        again.predict(TEXTS, "classification"), candidate.predict(TEXTS, "classification")
    )


def test_a_folder_that_changed_is_refused(copied: Path) -> None:
    recipe = TransformersCandidate(copied).recipe()
    change(copied, id2label={0: "yes", 1: "no"})
    with pytest.raises(FileFormatError, match=r"rents' is not the file that was used before"):
        from_recipe(recipe)


def test_a_model_of_the_hub_is_found_in_its_cache(
    folder: Path, tmp_path: Path, expected: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "models--somebody--rents"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("a" * 40)
    shutil.copytree(folder, kept / "snapshots" / ("a" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    candidate = TransformersCandidate("somebody/rents")
    assert candidate.label == "somebody/rents"
    assert_allclose(candidate.predict(TEXTS, "classification"), expected, rtol=1e-5)
    recipe = candidate.recipe()
    assert (recipe.path, recipe.name) == (None, "somebody/rents")
    assert from_recipe(recipe).recipe() == recipe
    with pytest.raises(FileFormatError, match="is not the file that was used before"):
        from_recipe(replace(recipe, sha256="0" * 64))


def test_a_folder_is_told_by_its_config(folder: Path) -> None:
    candidate = as_candidate(str(folder), classes=["a", "b"])
    assert isinstance(candidate, TransformersCandidate)
    assert repr(candidate) == "TransformersCandidate('rents')"


def test_pickled_it_reads_the_folder_again(folder: Path, expected: np.ndarray) -> None:
    candidate = TransformersCandidate(folder)
    candidate.predict(TEXTS, "classification")
    pickled = pickle.dumps(candidate)
    assert len(pickled) < 5000
    restored = pickle.loads(pickled)
    assert_allclose(restored.predict(TEXTS, "classification"), expected, rtol=1e-5)


def test_the_same_folder_twice_is_one_candidate(folder: Path) -> None:
    two = {"a": TransformersCandidate(folder), "b": TransformersCandidate(folder)}
    with pytest.raises(InvalidInputError, match="Candidates 'a' and 'b' are the same"):
        Pool(two, task="classification")


def length_over_ten(X: Any) -> np.ndarray:
    return np.array([0.9 if len(text) > 10 else 0.2 for text in X])


def word_counts(X: Any) -> np.ndarray:
    return np.array([[len(text.split())] for text in X], dtype=float)


def test_a_saved_model_comes_back_whole(folder: Path, tmp_path: Path) -> None:
    texts, y = TEXTS * 6, ["no", "yes", "no", "yes", "no"] * 6
    candidates = {
        "tone": TransformersCandidate(folder),
        "length": as_candidate(length_over_ten, classes=["no", "yes"]),
    }
    model = LocalMAClassifier(candidates, gate="global", gate_features=word_counts).fit(texts, y)
    model.save(tmp_path / "tone.localma")
    again = load(
        tmp_path / "tone.localma",
        candidates={"length": candidates["length"]},
        gate_features=word_counts,
        trust=True,
    )
    assert isinstance(again.pool_.candidates[0], TransformersCandidate)
    assert_allclose(again.predict_proba(texts), model.predict_proba(texts), rtol=1e-6)


# --- the package around it ---------------------------------------------------------------------


def test_a_torchvision_that_cannot_be_imported_is_no_hindrance() -> None:
    transformers = import_transformers()
    works = torchvision_failure() is None
    seen = transformers.utils.import_utils.is_torchvision_available()
    assert not seen or works


def test_reading_weights_is_quiet(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    TransformersCandidate(folder).predict(TEXTS, "classification")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_a_model_folder_is_itself(folder: Path) -> None:
    assert model_folder(folder) == folder


ENCODER = real_data("text_encoder")
needs_encoder = pytest.mark.skipif(
    ENCODER is None, reason="needs the folder text_encoder of the real data"
)


@needs_encoder
def test_the_real_encoder_has_no_head() -> None:
    with pytest.raises(InvalidInputError, match=r"text_encoder' holds a BertModel, but a cand"):
        TransformersCandidate(ENCODER)


@needs_encoder
def test_the_real_encoder_with_a_head(tmp_path: Path) -> None:
    """Its weights and tokenizer, and a head of our own: real word pieces, padded, in order."""
    transformers = import_transformers()
    with quiet(transformers):
        torch.manual_seed(0)
        whole = transformers.AutoModelForSequenceClassification.from_pretrained(
            ENCODER, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}
        )
        whole.half().save_pretrained(tmp_path)
        tokenizer = transformers.AutoTokenizer.from_pretrained(ENCODER)
        tokenizer.save_pretrained(tmp_path)
    texts = ["A flat in the north.", "Übermäßig hohe Miete! " * 20, "x", "two rooms, no lift"]
    predicted = TransformersCandidate(tmp_path).predict(texts, "classification")
    with torch.no_grad():
        alone = [whole.float()(**tokenizer(t, return_tensors="pt")).logits[0] for t in texts]
    assert_allclose(predicted, torch.softmax(torch.stack(alone), dim=1).numpy(), atol=1e-5)
