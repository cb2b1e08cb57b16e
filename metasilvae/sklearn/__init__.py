"""Estimators and scorers for scikit-learn.

    model = MetaSilvaeClassifier(epsilon=0.1).fit(X, y)
    cross_val_score(model, X, y, scoring=robust_accuracy_scorer())

Scorers also accept pipelines (the perturbation is that of the values that reach the classifier) and, for comparison,
trees of scikit-learn and other libraries that `metasilvae.interop.imports` can import.
"""

from __future__ import annotations

try:
    from metasilvae.sklearn.base import OPTIONS, RobustClassifier
    from metasilvae.sklearn.estimators import MetaSilvaeClassifier, RobustBoostingClassifier, RobustForestClassifier
    from metasilvae.sklearn.scorers import (
        RobustScorer,
        find_curve,
        fitness_scorer,
        robust_accuracy_scorer,
        stability_scorer,
    )
except ImportError as error:
    raise ImportError(
        f"the estimators need scikit-learn 1.6 or newer ({error}); pip install 'metasilvae[sklearn]'"
    ) from None

__all__ = [
    "OPTIONS",
    "MetaSilvaeClassifier",
    "RobustBoostingClassifier",
    "RobustClassifier",
    "RobustForestClassifier",
    "RobustScorer",
    "find_curve",
    "fitness_scorer",
    "robust_accuracy_scorer",
    "stability_scorer",
]
