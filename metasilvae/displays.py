"""Displays in the style of scikit-learn: curves of stability and robust accuracy over epsilon.

    RobustnessCurveDisplay.from_estimator(model, X_test, y_test)

Matplotlib draws them, into the axes of the user and with the user's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.extras import load_library
from metasilvae.model import PredictionTable
from metasilvae.output.axes import choose_axis
from metasilvae.output.plots.curves import LINES, label_axes, plot_curve
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Perturbation
from metasilvae.sklearn import find_curve
from metasilvae.verification.budget import Budget
from metasilvae.verification.curve import Curve
from metasilvae.verification.radius import Radii

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class RobustnessCurveDisplay:
    """Stability and robust accuracy over epsilon.

    Use `from_estimator` or `from_predictions`; all parameters are stored as attributes.

    Parameters
    ----------
    curve : Curve
        Certified radii of the samples.
    unit : str, default="epsilon"
        What the horizontal axis shows.
    estimator_name : str or None, default=None
        Name for the legend.

    Attributes
    ----------
    epsilon : ndarray of shape (n_steps,)
        Where the curves fall: each value holds up to and including its epsilon, above the one before.
    stability, robust_accuracy : ndarray of shape (n_steps,)
        Fractions of the samples that are stable, and that are robust.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib artists
        One for each metric that is drawn.
    """

    ax_: Axes
    figure_: Figure
    lines_: list[Any]

    def __init__(self, curve: Curve, *, unit: str = "epsilon", estimator_name: str | None = None) -> None:
        self.curve = curve
        self.unit = unit
        self.estimator_name = estimator_name

    @property
    def epsilon(self) -> NDArray[np.float64]:
        return self.curve.steps[0]

    @property
    def stability(self) -> NDArray[np.float64]:
        return self.curve.steps[1] / self.curve.n_samples

    @property
    def robust_accuracy(self) -> NDArray[np.float64]:
        return self.curve.steps[2] / self.curve.n_samples

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        perturbation: Perturbation | AttackRules | None = None,
        budget: Budget | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **look: Any,
    ) -> RobustnessCurveDisplay:
        """Compute the certified radius of each sample, and draw the curves.

        Parameters
        ----------
        estimator : object
            A fitted estimator of metasilvae, or one of scikit-learn and other libraries that `import_object` accepts;
            also the last step of a pipeline, whose other steps transform X.
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        perturbation : Perturbation, AttackRules or None, default=None
            The curve is over multiples of its radii; None means over epsilon.
        budget : Budget or None, default=None
            Limit of the search for each sample of a forest; with it, the curves may be lower bounds.
        name : str or None, default=None
            Name for the legend; None takes that of the estimator's class.
        ax : matplotlib Axes or None, default=None
            None makes a new figure.
        **look
            `metric`, and arguments of matplotlib's lines.
        """
        curve = find_curve(estimator, X, y, perturbation, budget=budget)
        unit = "epsilon" if perturbation is None else "multiple of the attack's radii"
        display = cls(curve, unit=unit, estimator_name=name or type(estimator).__name__)
        return display.plot(ax=ax, **look)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        radii: ArrayLike,
        *,
        unit: str = "epsilon",
        name: str | None = None,
        ax: Axes | None = None,
        **look: Any,
    ) -> RobustnessCurveDisplay:
        """Draw the curves of known predictions and certified radii.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n_samples,)
        radii : array-like of shape (n_samples,)
            Certified radius of each sample, such as `radius` of an estimator.
        """
        truth, predicted, known = (np.asarray(each) for each in (y_true, y_pred, radii))
        if truth.ndim != 1 or not len(truth) or truth.shape != predicted.shape or truth.shape != known.shape:
            raise ValueError(
                f"y_true, y_pred and radii have the shapes {truth.shape}, {predicted.shape} and {known.shape}; "
                "expected one value for each sample"
            )
        values = known.astype(np.float64)
        if not (values >= 0).all():
            raise ValueError("radii holds a value that is negative or NaN")
        nothing = PredictionTable(((0,),), np.zeros(len(truth), dtype=np.int32))
        curve = Curve(Radii(nothing, np.asarray(truth == predicted), values, values))
        return cls(curve, unit=unit, estimator_name=name).plot(ax=ax, **look)

    def plot(
        self, ax: Axes | None = None, *, name: str | None = None, metric: str | None = None, **look: Any
    ) -> RobustnessCurveDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            None makes a new figure.
        name : str or None, default=None
            Name for the legend; None takes `estimator_name`.
        metric : {"stability", "robust accuracy"} or None, default=None
            None draws both.
        **look
            Arguments of matplotlib's lines.
        """
        load_library("matplotlib", "plot", "a plot")
        if metric is not None and metric not in LINES:
            raise ValueError(f"metric is {metric!r}; expected {' or '.join(map(repr, LINES))}")
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        shown = name or self.estimator_name
        axis = choose_axis([self.curve])
        colour = look.pop("color", None) or ax._get_lines.get_next_color()  # type: ignore[attr-defined]
        self.lines_ = []
        for each in LINES if metric is None else [metric]:
            words = {"label": f"{shown}: {each}" if shown else each, "color": colour, "linestyle": LINES[each], **look}
            self.lines_.append(plot_curve(ax, self.curve, each, axis, **words))
        label_axes(ax, axis, self.unit)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure  # type: ignore[assignment]
        return self
