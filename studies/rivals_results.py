"""Comparisons of the study of rivals: table, counts and picture."""

LABELS = {
    "auto_own": "auto + own",
    "sklearn": "scikit-learn stacking",
    "lightgbm": "LightGBM on [X, P]",
    "deslib": "DESlib",
    "autogluon": "AutoGluon",
    "bayesblend": "BayesBlend",
    "regularized_neural_ensemblers": "Regularized Neural Ensemblers",
}
