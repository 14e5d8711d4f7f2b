"""Boosted trees: splits against hand-computed ones, sums against walks, hostile files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

from localma.errors import FileFormatError, InvalidInputError
from localma.trees.boosting import Bins, Growth, Trees, boost, kernel

PLAIN = Growth(n_leaves=8, depth=50, least_weight=1.0, l2=0.0, learning_rate=1.0)


def squared(y):
    """Half the squared error of each score: gradients are errors, curvatures one."""
    y = y.reshape(len(y), -1)
    return lambda scores: (scores - y, np.ones_like(scores))


def fit(X, y, n_rounds=1, growth=PLAIN, **options):
    n_scores = y.reshape(len(y), -1).shape[1]
    return boost(X, np.zeros(n_scores), squared(y), n_rounds=n_rounds, growth=growth, **options)


def walk(trees, x):
    """The sum of trees for one row, by the definition of their arrays."""
    total = np.zeros(trees.n_scores)
    for t in range(trees.n_rounds):
        start = node = trees.starts[t]
        while trees.feature[node] >= 0:
            value = x[trees.feature[node]]
            left = value <= trees.threshold[node]
            if np.isnan(value):
                left = bool(trees.missing_left[node])
            node = start + trees.children[node, 0 if left else 1]
        total += trees.values[node]
    return total


def sample(n=300, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.sin(2 * X[:, 0]) + (X[:, 1] > 0) * X[:, 2] + 0.3 * rng.normal(size=n)


class TestBins:
    def test_few_values_have_edges_halfway(self):
        bins = Bins.of(np.array([[3.0, 1.0], [1.0, 1.0], [1.0, 1.0]]))
        assert bins.edges.tolist() == [2.0]
        assert bins.first.tolist() == [0, 1, 1]

    def test_codes_are_numbers_of_edges_below(self):
        X, _ = sample(1000)
        bins = Bins.of(X, most_bins=16)
        codes = bins(X)
        assert codes.dtype == np.uint8
        for j in range(X.shape[1]):
            edges = bins.edges[bins.first[j] : bins.first[j + 1]]
            assert len(edges) == 15
            np.testing.assert_array_equal(codes[:, j], (edges < X[:, [j]]).sum(axis=1))
            assert np.ptp(np.bincount(codes[:, j])) <= 2  # quantiles

    def test_missing_values_have_a_bin_above_all_others(self):
        bins = Bins.of(np.array([[np.nan], [1.0], [2.0]]))
        assert bins(np.array([[np.nan], [5.0]])).ravel().tolist() == [2, 1]
        assert Bins.of(np.full((3, 1), np.nan)).edges.size == 0

    def test_weights_equal_repeated_rows(self):
        rng = np.random.default_rng(0)
        x, times = rng.normal(size=(500, 2)), rng.integers(0, 4, size=500)
        by_weight = Bins.of(x, times.astype(float), most_bins=10)
        by_rows = Bins.of(np.repeat(x, times, axis=0), most_bins=10)
        np.testing.assert_array_equal(by_weight.edges, by_rows.edges)

    @pytest.mark.parametrize(
        "values",
        [[-1.7e308, 1.7e308], [1.0, np.nextafter(1.0, 2.0)], [0.0, 5e-324], [-np.inf, np.inf],
         [1.0, np.inf]],
    )  # fmt: skip
    def test_edges_separate_extreme_values(self, values):
        x = np.array(values)[:, np.newaxis]
        assert Bins.of(x)(x).ravel().tolist() == [0, 1]

    def test_more_bins_than_a_byte_are_not_made(self):
        bins = Bins.of(np.arange(1000.0)[:, np.newaxis], most_bins=1000)
        assert len(bins.edges) == 253
        assert bins(np.array([[np.nan], [1e9]])).ravel().tolist() == [254, 253]


class TestSplits:
    def test_gain_and_values_by_hand(self):
        # G = (-1, -2, 3), H = 1, l2 = 1: the split after 2 saves 9/3 + 9/2 - 0 = 7.5, the other
        # one 1/2 + 1/3 - 0. The leaves are 3/3 and -3/2.
        X, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, -3.0])
        trees = fit(X, y, growth=replace(PLAIN, n_leaves=2, l2=1.0))
        assert trees.threshold[0] == 2.5
        np.testing.assert_allclose(trees.values[1:, 0], [1.0, -1.5])
        np.testing.assert_allclose(trees.values[0, 0], 0.0)

    def test_the_leaf_with_the_larger_gain_grows_first(self):
        x = np.arange(8.0)
        y = np.array([0, 0, 1, 1, 20, 20, 30, 30.0])
        trees = fit(x[:, np.newaxis], y, growth=replace(PLAIN, n_leaves=3))
        np.testing.assert_allclose(sorted(trees.threshold[trees.feature >= 0]), [3.5, 5.5])

    def test_depth_limits_growth(self):
        X, y = sample()
        trees = fit(X, y, growth=replace(PLAIN, n_leaves=31, depth=2))
        assert (trees.feature < 0).sum() == 4

    def test_leaves_have_the_least_weight(self):
        X, y = sample()
        weight = np.random.default_rng(1).uniform(0.1, 2, len(y))
        growth = replace(PLAIN, n_leaves=31, least_weight=12.0)
        trees = fit(X, y, growth=growth, sample_weight=weight)
        leaves, member = np.unique(trees.predict(X).ravel(), return_inverse=True)
        assert len(leaves) > 8
        assert np.bincount(member, weight).min() >= 12.0

    def test_missing_values_go_where_they_fit(self):
        x = np.array([1.0, 2, 3, 4, np.nan, np.nan])[:, np.newaxis]
        like_low = fit(x, np.array([0.0, 0, 9, 9, 0, 0]), growth=replace(PLAIN, n_leaves=2))
        like_high = fit(x, np.array([0.0, 0, 9, 9, 9, 9]), growth=replace(PLAIN, n_leaves=2))
        assert like_low.predict(x).ravel().tolist() == [0, 0, 9, 9, 0, 0]
        assert like_high.predict(x).ravel().tolist() == [0, 0, 9, 9, 9, 9]

    def test_missing_values_can_have_a_leaf_of_their_own(self):
        x, y = np.array([1.0, 2, 3, np.nan])[:, np.newaxis], np.array([0.0, 0, 0, 5])
        trees = fit(x, y, growth=replace(PLAIN, n_leaves=2))
        assert trees.predict(np.array([[-9.0], [np.inf], [np.nan]])).ravel().tolist() == [0, 0, 5]

    def test_values_that_were_never_missing_go_to_the_heavier_child(self):
        x, y = np.arange(5.0)[:, np.newaxis], np.array([0.0, 0, 0, 7, 7])
        trees = fit(x, y, growth=replace(PLAIN, n_leaves=2))
        assert trees.predict(np.array([[np.nan]])).item() == 0.0

    @pytest.mark.parametrize("X", [np.ones((5, 2)), np.full((5, 1), np.nan), np.empty((5, 0))])
    def test_without_a_split_a_tree_is_the_mean(self, X):
        trees = fit(X, np.arange(5.0))
        assert len(trees.feature) == 1
        np.testing.assert_allclose(trees.predict(X), 2.0)

    def test_one_row(self):
        trees = fit(np.array([[3.0]]), np.array([4.0]), n_rounds=2)
        np.testing.assert_allclose(trees.predict(np.array([[0.0], [np.nan]])), 4.0)

    def test_rows_without_curvature_have_no_value(self):
        trees = boost(
            np.arange(4.0)[:, np.newaxis], np.zeros(1), lambda s: (s + 1.0, np.zeros_like(s)),
            n_rounds=3, growth=PLAIN,
        )  # fmt: skip
        assert not trees.values.any()


class TestAgreement:
    def test_with_a_decision_tree(self):
        X, y = sample(120)
        for n_leaves in (2, 5, 12):
            tree = DecisionTreeRegressor(max_leaf_nodes=n_leaves, random_state=0).fit(X, y)
            # All values have their own bin, so that the same splits can be found.
            ours = fit(X, y, growth=replace(PLAIN, n_leaves=n_leaves), bins=Bins.of(X, None, 200))
            np.testing.assert_allclose(ours.predict(X)[:, 0], tree.predict(X))
            # Thresholds differ, since they are halfway between values of the whole sample.
            assert sorted(ours.feature) == sorted(np.maximum(tree.tree_.feature, -1))

    def test_several_scores_with_a_decision_tree(self):
        X, y = sample(120)
        Y = np.stack([y, X[:, 2] ** 2, -y], axis=1)
        tree = DecisionTreeRegressor(max_leaf_nodes=6, random_state=0).fit(X, Y)
        ours = fit(X, Y, growth=replace(PLAIN, n_leaves=6), bins=Bins.of(X, None, 200))
        np.testing.assert_allclose(ours.predict(X), tree.predict(X))

    @pytest.mark.parametrize("missing", [False, True])
    def test_with_histogram_gradient_boosting(self, missing):
        X, y = sample(200)
        if missing:
            X[np.random.default_rng(3).random(X.shape) < 0.2] = np.nan
        theirs = HistGradientBoostingRegressor(
            max_iter=20, learning_rate=0.3, max_leaf_nodes=6, min_samples_leaf=5, max_bins=255,
            early_stopping=False, l2_regularization=0.7,
        ).fit(X, y)  # fmt: skip
        growth = Growth(n_leaves=6, depth=50, least_weight=5, l2=0.7, learning_rate=0.3)
        ours = boost(
            X, np.array([y.mean()]), squared(y), n_rounds=20, growth=growth,
            bins=Bins.of(X, None, 254),
        )  # fmt: skip
        # Single precision of their gradients may turn a tie the other way.
        difference = np.abs(y.mean() + ours.predict(X)[:, 0] - theirs.predict(X))
        assert np.quantile(difference, 0.9) < 1e-4

    def test_weights_equal_repeated_rows(self):
        X, y = sample(150)
        times = np.random.default_rng(2).integers(0, 4, size=150)
        growth = replace(PLAIN, least_weight=4.0, l2=0.5, learning_rate=0.2)
        weighted = fit(X, y, 10, growth, sample_weight=times.astype(float))
        repeated = fit(np.repeat(X, times, axis=0), np.repeat(y, times), 10, growth)
        np.testing.assert_array_equal(weighted.feature, repeated.feature)
        np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("scale", [1e-300, 1e150])
    def test_units_of_inputs_do_not_matter(self, scale):
        X, y = sample(100)
        plain, scaled = fit(X, y, 5), fit(X * scale, y, 5)
        np.testing.assert_array_equal(plain.predict(X), scaled.predict(X * scale))

    def test_boosting_lowers_the_loss(self):
        X, y = sample()
        trees = fit(X, y, 50, replace(PLAIN, learning_rate=0.1))
        losses = ((trees.staged(X, range(51))[..., 0] - y) ** 2).mean(axis=1)
        assert (np.diff(losses) < 0).all()
        assert losses[-1] < 0.1 * losses[0]


class TestShares:
    def test_the_seed_decides(self):
        X, y = sample()
        growth = replace(PLAIN, row_share=0.5, column_share=0.5)
        one, same, other = (fit(X, y, 5, growth, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one.predict(X), same.predict(X))
        assert (one.predict(X) != other.predict(X)).any()

    def test_a_tree_splits_by_the_drawn_inputs(self):
        X, y = sample(p=8)
        trees = fit(X, y, 30, replace(PLAIN, column_share=0.25))
        for begin, end in zip(trees.starts[:-1], trees.starts[1:], strict=True):
            feature = trees.feature[begin:end]
            assert len(set(feature[feature >= 0])) <= 2
        assert len(set(trees.feature[trees.feature >= 0])) > 4

    def test_rows_outside_the_share_have_no_part(self):
        X, y = np.arange(40.0)[:, np.newaxis], np.arange(40.0)
        root = replace(PLAIN, n_leaves=1, row_share=0.5)
        values = [fit(X, y, 1, root, seed=seed).values.item() for seed in range(20)]
        assert len(set(values)) > 10  # means of 20 different rows
        np.testing.assert_allclose(np.mean(values), 19.5, atol=2.0)


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


class TestEvaluation:
    @settings(max_examples=60, deadline=None)
    @given(
        X=arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=numbers),
        new=arrays(np.float64, (5, 3), elements=numbers),
        seed=st.integers(0, 10),
    )
    def test_sums_are_those_of_walks(self, X, new, seed):
        rng = np.random.default_rng(seed)
        y, weight = rng.normal(size=(len(X), 2)), rng.integers(0, 3, size=len(X))
        weight[0] = 1
        growth = replace(PLAIN, learning_rate=0.3)
        trees = fit(X, y, 4, growth, sample_weight=weight.astype(float))
        rows = np.concatenate([X, new[:, : X.shape[1]]])
        np.testing.assert_allclose(
            trees.predict(rows), [walk(trees, row) for row in rows], rtol=1e-12, atol=1e-12
        )

    def test_stages_are_sums_of_the_first_trees(self):
        X, y = sample()
        trees = fit(X, np.stack([y, -2 * y], axis=1), 10)
        staged = trees.staged(X, [0, 3, 3, 10])
        assert not staged[0].any()
        for stage, rounds in zip(staged, (0, 3, 3, 10), strict=True):
            np.testing.assert_array_equal(stage, trees.predict(X, rounds))
            np.testing.assert_array_equal(stage, trees.first(rounds).predict(X))

    def test_scores_of_training_are_those_of_prediction(self):
        X, y = sample()
        X[::7, 0] = np.nan
        last = []

        def remember(scores):
            last.append(scores.copy())
            return squared(y)(scores)

        trees = boost(X, np.array([0.5]), remember, n_rounds=6, growth=PLAIN)
        for rounds, scores in enumerate(last):
            np.testing.assert_allclose(0.5 + trees.predict(X, rounds), scores, rtol=1e-12)

    def test_inputs_of_another_width_are_refused(self):
        trees = fit(*sample())
        with pytest.raises(InvalidInputError, match=r"take 4 inputs .* shape \(2, 3\)"):
            trees.predict(np.zeros((2, 3)))
        with pytest.raises(InvalidInputError, match=r"up to 1 rounds .* rounds \[2\]"):
            trees.predict(np.zeros((2, 4)), 2)


class TestSaving:
    def test_restored_trees_are_the_same(self):
        X, y = sample()
        trees = fit(X, y, 5)
        again = Trees.restore(trees.arrays())
        np.testing.assert_array_equal(again.predict(X), trees.predict(X))
        assert Trees.restore(trees.first(0).arrays()).n_rounds == 0

    @pytest.mark.parametrize(
        ("name", "position", "value"),
        [
            ("feature", 0, 4), ("feature", 0, -2), ("feature", 1, 2**31 - 1),
            ("children", (0, 0), 0), ("children", (0, 1), 15), ("children", (0, 1), -1),
            ("starts", 0, 1), ("starts", 1, 0), ("starts", -1, 10**9),
            ("threshold", 0, np.nan), ("values", (1, 0), np.inf), ("values", (1, 0), np.nan),
            ("missing_left", 0, 2),
        ],
    )  # fmt: skip
    def test_hostile_arrays_are_refused(self, name, position, value):
        arrays_ = {key: array.copy() for key, array in fit(*sample(), 3).arrays().items()}
        arrays_[name][position] = value
        with pytest.raises(FileFormatError, match=r"must hold .*Load an intact file"):
            Trees.restore(arrays_)

    @pytest.mark.parametrize("name", list(fit(*sample(20)).arrays()))
    def test_other_shapes_types_and_names_are_refused(self, name):
        saved = fit(*sample(), 3).arrays()
        with pytest.raises(FileFormatError):
            Trees.restore({key: value for key, value in saved.items() if key != name})
        for wrong in (saved[name][np.newaxis], saved[name].astype("c16"), np.zeros((0, 0, 0))):
            with pytest.raises(FileFormatError, match=name):
                Trees.restore(saved | {name: wrong})

    def test_every_flip_of_a_number_is_refused_or_harmless(self):
        X, y = sample(80)
        saved, rng = fit(X, y, 3).arrays(), np.random.default_rng(0)
        for _ in range(300):
            damaged = {key: array.copy() for key, array in saved.items()}
            name = rng.choice([key for key in damaged if damaged[key].ndim])
            flat = damaged[name].reshape(-1)
            flat[rng.integers(flat.size)] = rng.integers(0, 40) - 2 * (flat.dtype.kind != "u")
            try:
                trees = Trees.restore(damaged)
            except FileFormatError:
                continue
            assert np.isfinite(trees.predict(X)).all()


def test_a_new_process_grows_the_same_trees_in_threads():
    program = """
import numpy as np
from concurrent.futures import ThreadPoolExecutor
import localma, sys
assert "numba" not in sys.modules
from localma.trees.boosting import Growth, boost, kernel
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 3)); y = np.sin(X[:, :1])
kernel()
def grow(_):
    errors = lambda scores: (scores - y, np.ones_like(y))
    return boost(X, np.zeros(1), errors, n_rounds=20, growth=Growth()).predict(X)
with ThreadPoolExecutor(2) as pool:
    first, *others = pool.map(grow, range(6))
assert all((first == other).all() for other in others)
print(first.sum())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_kernel_is_cached_on_disk():
    assert kernel().grow.stats.cache_path
