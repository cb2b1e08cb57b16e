"""The library in a few functions; docs/api.md shows examples.

They combine what the modules below them offer, and check their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metasilvae.analysis.proofs import Proof
from metasilvae.analysis.proofs import prove_constant as _prove_constant
from metasilvae.analysis.proofs import prove_insensitive as _prove_insensitive
from metasilvae.analysis.proofs import prove_monotone as _prove_monotone
from metasilvae.analysis.spaces import InputSpace, describe_columns
from metasilvae.analysis.sufficiency import Sufficiency
from metasilvae.analysis.sufficiency import find_sufficient as _find_sufficient
from metasilvae.dataset import Dataset
from metasilvae.encoding import Encoding
from metasilvae.errors import DataError, RequestError
from metasilvae.formats.frames import encode_rows, find_kinds, is_frame, read_frame
from metasilvae.formats.tables import DEFAULT_TABLE, TableOptions, read_typed, with_specs
from metasilvae.formats.text import Problems
from metasilvae.interop.imports.imported import name_classes
from metasilvae.model import Model, PredictionTable
from metasilvae.perturbations.attack import ColumnFinder, fit_attack
from metasilvae.perturbations.attack_files import AttackRules
from metasilvae.perturbations.boxes import Ball, Perturbation
from metasilvae.prediction import align, check_missing
from metasilvae.prediction import predict as _predict
from metasilvae.prediction import predict_proba as _predict_proba
from metasilvae.training.options import (
    PRESETS,
    BoostingOptions,
    ForestOptions,
    Options,
    TrainingOptions,
    boosting_options_for,
    forest_options_for,
    options_for,
)
from metasilvae.training.pareto import TreeCollector, TreeMetrics
from metasilvae.training.protocol import Progress, finish
from metasilvae.training.provenance import describe_run, describe_trained
from metasilvae.training.runs import TrainingMonitor, TrainingOutcome, TrainingRequest, make_trainer
from metasilvae.training.runs import run_training as _run_training
from metasilvae.training.weights import ClassWeight, weigh
from metasilvae.verification.budget import Budget
from metasilvae.verification.ceiling import Ceiling
from metasilvae.verification.ceiling import find_ceiling as _find_ceiling
from metasilvae.verification.metrics import Evaluation
from metasilvae.verification.metrics import evaluate as _evaluate
from metasilvae.verification.objective import fitness_from_weights
from metasilvae.verification.query import VerificationQuery, make_query
from metasilvae.verification.radius import Radii
from metasilvae.verification.radius import find_radii as _find_radii
from metasilvae.verification.shards import Shard
from metasilvae.verification.targets import TargetResults, find_changes, find_label
from metasilvae.verification.targets import find_targets as _find_targets
from metasilvae.verification.verdicts import Outcome
from metasilvae.verification.verifier import Witness
from metasilvae.verification.verifier import find_witnesses as _find_witnesses
from metasilvae.verification.verifier import verify as _verify


def make_dataset(
    X: ArrayLike,
    y: ArrayLike,
    feature_names: Sequence[str] | None = None,
    source: str = "<memory>",
    *,
    columns: TableOptions | None = None,
    encoding: Encoding | None = None,
) -> Dataset:
    """A data set from arrays, or from a DataFrame of pandas or polars.

    Parameters
    ----------
    X : array of numbers or DataFrame, shape (n_samples, n_features)
        Finite; NaN where a value is missing. Columns of a DataFrame with texts, categories and booleans are encoded.
    y : array, shape (n_samples,)
        Labels of any kind; they are known by their text, whole numbers without a point.
    feature_names : sequence of str or None
        None takes the names of the columns if X is a DataFrame whose names are text.
    source : str
        Name for messages and reports.
    columns : TableOptions or None
        Types of columns of a DataFrame; None takes them from the dtypes and the rows.
    encoding : Encoding or None
        How the columns of a DataFrame become features, usually ``model.encoding``; None finds it out. Columns of an
        array are categories by the encoding of an imported model, too.
    """
    is_encoded = is_frame(X) and (encoding is not None or columns is not None or find_kinds(X))
    if is_encoded or (encoding is not None and encoding.has_sets):
        if encoding is not None and encoding.has_sets:
            dataset = encode_rows(X, source, encoding)
        else:
            dataset = encode_frame(X, source, columns or DEFAULT_TABLE, encoding)
        labels = np.asarray(y)
        if labels.shape != (dataset.n_samples,):
            raise DataError(f"{source}: X has {dataset.n_samples} rows, y has the shape {labels.shape}")
        texts = name_classes(labels)
        names = tuple(dict.fromkeys(texts))
        code = {name: number for number, name in enumerate(names)}
        codes = np.array([code[text] for text in texts], dtype=np.int32)
        return replace(dataset, y=codes, labels=names, label_name=name_series(y))
    values, labels = _as_numbers(X, source), np.asarray(y)
    if values.ndim != 2 or labels.shape != values.shape[:1] or not values.size:
        raise DataError(
            f"{source}: X has the shape {values.shape} and y {labels.shape}; expected (n_samples, n_features) and "
            "(n_samples,), with at least one sample and one feature"
        )
    _refuse_infinite(values, source)
    texts = name_classes(labels)
    names = tuple(dict.fromkeys(texts))
    code = {name: number for number, name in enumerate(names)}
    codes = np.array([code[text] for text in texts], dtype=np.int32)
    column_names = name_columns(X) if feature_names is None else tuple(feature_names)
    if column_names is not None and len(column_names) != values.shape[1]:
        raise DataError(f"{source}: X has {values.shape[1]} features, but there are {len(column_names)} feature_names")
    return Dataset(values, codes, names, column_names, source, label_name=name_series(y))


def encode_frame(
    X: Any,
    source: str,
    columns: TableOptions = DEFAULT_TABLE,
    encoding: Encoding | None = None,
    categorical: Sequence[str] = (),
) -> Dataset:
    """The rows of a DataFrame without labels, encoded as features."""
    table, specs = read_frame(X, source, categorical)
    return read_typed(table, with_specs(columns, specs), Problems(source), encoding, "the training data")


def name_columns(X: object) -> tuple[str, ...] | None:
    """Names of the columns of a DataFrame, if all of them are text."""
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return tuple(str(name) for name in columns)


def name_series(y: object) -> str | None:
    """Name of a Series, if it is text."""
    name = getattr(y, "name", None)
    return str(name) if isinstance(name, str) else None


def _as_numbers(X: ArrayLike, source: str) -> NDArray[np.float64]:
    try:
        return np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: X is no array of numbers: {error}") from None


def _refuse_infinite(values: NDArray[np.float64], source: str) -> None:
    if np.isinf(values).any():
        raise DataError(f"{source}: X holds infinite values; expected finite ones, and NaN where a value is missing")


def _finite_table(X: ArrayLike, source: str) -> NDArray[np.float64]:
    values = _as_numbers(X, source)
    if values.ndim != 2:
        raise DataError(f"{source}: has the shape {values.shape}; expected (n_samples, n_features)")
    _refuse_infinite(values, source)
    return values


def as_perturbation(epsilon: float | Perturbation | AttackRules, dataset: Dataset | None = None) -> Perturbation:
    """A number is the radius of a ball in the maximum norm; rules of an attack are applied to the data set."""
    if isinstance(epsilon, AttackRules) and dataset is not None:
        return fit_attack(epsilon, dataset)
    if isinstance(epsilon, Real):
        return Ball(float(epsilon))
    if not hasattr(epsilon, "boxes"):
        raise RequestError(f"epsilon is {epsilon!r}; expected a number or a perturbation such as Ball(0.1)")
    return cast(Perturbation, epsilon)


def choose_options(
    preset: str = "default",
    *,
    trees: int | None = None,
    boost: int | None = None,
    weights: dict[str, float] | None = None,
    **changes: Any,
) -> TrainingOptions | ForestOptions | BoostingOptions:
    """Options of a tree, of a forest of `trees` trees, or of `boost` rounds of boosting, by the name of a preset.

    Parameters
    ----------
    weights : dict or None
        Weights of the fitness, such as ``{"accuracy": 0.9, "stability": 0.1}``.
    **changes
        Fields of `TrainingOptions`; for a forest also `method` and `row_sample`; for boosting those of
        `BoostingOptions`. None leaves the preset's value.
    """
    if preset not in PRESETS:
        raise RequestError(f"preset {preset!r}: choose among {', '.join(PRESETS)}")
    if weights is not None:
        changes["fitness"] = fitness_from_weights(weights)
    if trees is not None and boost is not None:
        raise RequestError("'trees' asks for a forest and 'boost' for a boosted model; give one of them")
    try:
        if boost is not None:
            return boosting_options_for(preset, boost, **changes)
        return options_for(preset, **changes) if trees is None else forest_options_for(preset, trees, **changes)
    except TypeError as error:
        raise RequestError(str(error)) from None


def _expect(**arguments: object) -> None:
    """Refuse arguments of a wrong type where they are given, instead of somewhere inside."""
    kinds = {"model": Model, "dataset": Dataset, "data": Dataset, "budget": Budget}
    data = "read_dataset or make_dataset"
    makers = {"model": "read_model or train", "dataset": data, "data": data, "budget": "Budget(seconds=1)"}
    for name, value in arguments.items():
        if not isinstance(value, kinds[name]) and not (name == "budget" and value is None):
            raise RequestError(f"{name} is a {type(value).__name__}; expected what {makers[name]} gives")


def train(
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    options: Options | None = None,
    *,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    start: Model | None = None,
    report: Callable[[Progress], object] | None = None,
    jobs: int | None = None,
    **choices: Any,
) -> Model:
    """Train a tree or a forest to the end.

    Parameters
    ----------
    dataset : Dataset
        Training samples.
    epsilon : float, Perturbation or AttackRules
        The perturbation that the model should withstand; rules of `read_attack` are bound to column names.
    options : TrainingOptions, ForestOptions, BoostingOptions or None
        None makes them by `choose_options` from the other keywords.
    class_weight : "balanced", dict or None
        Weights of classes by label, or the same total weight for all of them. Accuracy, stability and all that training
        maximizes are weighted, and so are the class counts in leaves.
    sample_weight : array-like of shape (n_samples,) or None
        Weights of rows; rows of weight 0 are left out.
    start : Model or None
        Trees from which the search for one tree starts.
    report : function or None
        Called with the progress after each step.
    jobs : int or None
        Threads; None means all available cores. The model does not depend on it.
    """
    _expect(dataset=dataset)
    dataset = weigh(dataset, class_weight, sample_weight)
    chosen, perturbation = _options_of(options, choices), as_perturbation(epsilon, dataset)
    if start is not None and not chosen.is_observable:
        raise RequestError("'start' is for the search for one tree")
    trainer = make_trainer(dataset, perturbation, chosen, jobs, start)
    for progress in trainer.run():
        if report is not None:
            report(progress)
    return _describe(trainer.model, dataset, perturbation, chosen, trainer.tuning, start)


def _describe(
    model: Model,
    dataset: Dataset,
    perturbation: Perturbation,
    options: Options,
    tuning: dict[str, Any] | None = None,
    start: Model | None = None,
) -> Model:
    seed = options.tree_options.seed
    return describe_trained(model, dataset, describe_run(dataset, perturbation, options, [seed], start), seed, tuning)


def train_pareto(
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    options: Options | None = None,
    *,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    jobs: int | None = None,
    **choices: Any,
) -> list[tuple[TreeMetrics, Model]]:
    """Train a tree, and keep all trees of the run that no other one beats in accuracy, stability and size.

    Parameters are those of `train`. The most accurate tree comes first. The metrics are exact, on the rows that
    `validation` holds out if it does, otherwise on the training samples.
    """
    _expect(dataset=dataset)
    dataset = weigh(dataset, class_weight, sample_weight)
    chosen, perturbation = _options_of(options, choices), as_perturbation(epsilon, dataset)
    collector = TreeCollector(dataset, perturbation, chosen.tree_options)
    trainer = make_trainer(dataset, perturbation, chosen, jobs)
    trainer.observe(collector)
    finish(trainer)
    return [(metrics, _describe(model, dataset, perturbation, chosen)) for metrics, model in collector.entries]


def run_training(
    data: Dataset | str,
    epsilon: float | Perturbation | AttackRules,
    output: str | Path | None = None,
    options: Options | None = None,
    *,
    seeds: Sequence[int] | None = None,
    start: Model | str | None = None,
    test: Dataset | str | None = None,
    log: str | Path | None = None,
    pareto: str | Path | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
    resume: str | Path | None = None,
    manifest: bool = True,
    plain: bool = False,
    scheduler: str | None = None,
    shard: str | Shard | None = None,
    jobs: int | None = None,
    reading: dict[str, Any] | None = None,
    class_weight: ClassWeight | None = None,
    sample_weight: ArrayLike | None = None,
    monitor: TrainingMonitor | None = None,
    **choices: Any,
) -> TrainingOutcome:
    """Train with everything that ``metasilvae train`` offers, and write the files that are named.

    Parameters
    ----------
    data : Dataset or str
        Training samples, or the source to read them from.
    epsilon : float, Perturbation or AttackRules
        The perturbation that the model should withstand; rules of `read_attack` are bound to column names.
    output : path or None
        File for the model, which is read back and scored again; None writes no model.
    options : TrainingOptions, ForestOptions, BoostingOptions or None
        None makes them by `choose_options` from the other keywords.
    seeds : sequence of int or None
        Train once for each seed and keep the best model.
    start : Model, str or None
        Trees, or their file, from which the search for one tree starts.
    test : Dataset, str or None
        Rows to report metrics on; they do not influence the model.
    log : path or None
        File for one line of JSON per step.
    pareto : path or None
        New or empty folder for all trees that no other tree beats in accuracy, stability and size.
    checkpoint, resume : path or None
        File for checkpoints, and file to resume from; ``resume="auto"`` is the checkpoint, if it exists.
    every : int or None
        Steps between two checkpoints; None writes them by the clock.
    manifest : bool
        Whether to write ``OUTPUT.manifest.json``.
    plain : bool
        Whether to leave out the line behind a model that describes it.
    scheduler : str or None
        Dask cluster to train on: address of the scheduler, or the file that it wrote.
    shard : str, Shard or None
        Train only this part, such as ``"3/10"``, of the seeds or of the trees of a forest.
    jobs : int or None
        Threads; None means all available cores. The model does not depend on it.
    reading : dict or None
        Options of `read_dataset` for sources of data.
    class_weight, sample_weight
        As for `train`. The metrics of the outcome are weighted; test rows have the weights of their classes.
    monitor : TrainingMonitor or None
        Follows the run and can stop it.

    Returns
    -------
    TrainingOutcome
        With `model`, the metrics of all seeds (`runs`, `records`) and the trees of the `archive`.
    """

    if not isinstance(data, str):
        _expect(data=data)

    def named(path: str | Path | None) -> str | None:
        return None if path is None else str(path)

    # The rules of an attack are applied when the data are known.
    withstood = partial(fit_attack, epsilon) if isinstance(epsilon, AttackRules) else as_perturbation(epsilon)
    request = TrainingRequest(
        data, withstood, _options_of(options, choices), named(output), seeds, start, test, named(log),
        named(pareto), named(checkpoint), every, named(resume), manifest, scheduler,
        Shard.parse(shard) if isinstance(shard, str) else shard, jobs, reading or {}, plain,
        class_weight=class_weight, sample_weight=sample_weight,
    )  # fmt: skip
    return _run_training(request, monitor)


def _options_of(options: Options | None, choices: dict[str, Any]) -> Options:
    if options is not None and choices:
        raise RequestError(f"options are given, and so are {', '.join(choices)}; give one of them")
    return choose_options(**choices) if options is None else options


def predict(model: Model, X: ArrayLike, voting: str | None = None, *, jobs: int | None = None) -> PredictionTable:
    """Prediction of the model for each sample: a set of labels, because votes and counts can tie.

    Parameters
    ----------
    X : array of numbers, shape (n_samples, n_features)
        Finite; NaN where a value is missing, for models with directions. The columns of a DataFrame are matched to the
        features of the model by name, if both have names. A model that was imported with categories takes the columns
        that its library takes.
    voting : str or None
        ``max``, ``average`` or ``softargmax``; None means that of the model, or chooses by the kind of leaves.
    """
    return _predict(model, _rows_for(model, X), voting, jobs)


def predict_proba(
    model: Model, X: ArrayLike, voting: str | None = None, *, jobs: int | None = None
) -> NDArray[np.float64]:
    """Probability of each label of the model for each sample, shape (n_samples, n_labels); rows sum to one.

    For a tree these are the class fractions in its leaf; for a forest the fractions of its votes (``max``) or the mean
    of the class fractions (``average``); for a boosted model the soft maximum of its scores. Parameters are those of
    `predict`.
    """
    return _predict_proba(model, _rows_for(model, X), voting, jobs)


def _rows_for(model: Model, X: ArrayLike) -> NDArray[np.float64]:
    """The features of a model, of an array or a DataFrame."""
    _expect(model=model)
    if model.encoding is not None:
        if model.encoding.has_sets:
            return encode_rows(X, "X", model.encoding, model.source).X
        if not is_frame(X):
            raise DataError(f"X is no DataFrame; {model.source} needs the columns of a table by name")
        return encode_frame(X, "X", encoding=model.encoding).X
    values, names = _finite_table(X, "X"), name_columns(X)
    dataset = Dataset(values, np.zeros(len(values), dtype=np.int32), (), names, "X")
    if names is not None and model.description.feature_names is not None:
        return align(model, dataset).X
    if values.shape[1] != model.n_features:
        raise DataError(f"X has {values.shape[1]} features, {model.source} has {model.n_features}")
    check_missing(model, dataset)
    return values


def evaluate(
    model: Model,
    dataset: Dataset,
    epsilons: Sequence[float | Perturbation | AttackRules] = (),
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> list[Evaluation]:
    """Evaluate under each perturbation, or accuracy alone where none is given.

    Parameters
    ----------
    budget : Budget or None
        What may be spent on one sample by a forest; None decides every one, however long it takes.
    """
    _expect(model=model, dataset=dataset, budget=budget)
    perturbations = [as_perturbation(epsilon, dataset) for epsilon in epsilons]
    return _evaluate(model, dataset, perturbations, voting=voting, jobs=jobs, budget=budget)


def find_ceiling(dataset: Dataset, epsilon: float | Perturbation) -> Ceiling:
    """The accuracy and robust accuracy that no model can exceed on labelled samples.

    Two samples with different labels and a common perturbation cannot both be robust.
    """
    _expect(dataset=dataset)
    if not dataset.has_labels:
        raise DataError(f"{dataset.source}: has no labels; a ceiling is about the predictions of labels")
    return _find_ceiling(dataset, as_perturbation(epsilon))


def verify(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Outcome:
    """Decide for each sample whether a perturbation can change the prediction.

    Parameters
    ----------
    budget : Budget or None
        What may be spent on one sample by a forest; None decides every one, however long it takes.
    """
    _expect(model=model, dataset=dataset, budget=budget)
    return _verify(make_query(model, dataset, as_perturbation(epsilon, dataset), voting=voting), jobs, budget=budget)


def find_witnesses(
    model: Model,
    dataset: Dataset,
    epsilon: float | Perturbation | AttackRules,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Iterator[Witness]:
    """For each unstable sample a perturbed one that has another prediction."""
    _expect(model=model, dataset=dataset, budget=budget)
    query = make_query(model, dataset, as_perturbation(epsilon, dataset), voting=voting)
    return _find_witnesses(query, _verify(query, jobs, budget=budget), jobs)


def find_radii(
    model: Model,
    dataset: Dataset,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Radii:
    """For each sample the largest radius at which the prediction cannot change, in multiples of the perturbation."""
    _expect(model=model, dataset=dataset, budget=budget)
    unit = as_perturbation(1.0 if perturbation is None else perturbation, dataset)
    return _find_radii(make_query(model, dataset, unit, voting=voting), jobs, budget=budget)


def find_targets(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    nearest: bool = False,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> TargetResults:
    """Decide for each sample whether an allowed change gives it a label.

    Parameters
    ----------
    target : str
        The label; a sample gets it if it is the only label of its prediction.
    perturbation : float, Perturbation, AttackRules or None
        Allowed changes; ``NormBall("l1", 0.3)`` limits their sum. None means balls in the maximum norm, for `nearest`.
    nearest : bool
        Whether to find the nearest such change at any distance.
    """
    return _search_targets(model, dataset, target, perturbation, nearest, voting, jobs, budget)[1]


def find_counterfactuals(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Iterator[Witness]:
    """For each sample that can get a label, the nearest change that gives it; `find_targets` describes the rest."""
    query, results = _search_targets(model, dataset, target, perturbation, True, voting, jobs, budget)
    return find_changes(query, results)


def _search_targets(
    model: Model,
    dataset: Dataset,
    target: str,
    perturbation: float | Perturbation | AttackRules | None,
    nearest: bool,
    voting: str | None,
    jobs: int | None,
    budget: Budget | None,
) -> tuple[VerificationQuery, TargetResults]:
    _expect(model=model, dataset=dataset, budget=budget)
    if perturbation is None and not nearest:
        raise RequestError("find_targets needs a perturbation, the allowed changes, or nearest=True")
    allowed = as_perturbation(1.0 if perturbation is None else perturbation, dataset)
    query = make_query(model, dataset, allowed, voting=voting)
    return query, _find_targets(query, find_label(model, target), jobs, is_nearest=nearest, budget=budget)


def prove_insensitive(
    model: Model,
    columns: Sequence[str | int],
    domain: Dataset | AttackRules | None = None,
    *,
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
) -> Proof:
    """Prove that inputs which differ only in some columns get the same prediction, or find two that do not.

    Parameters
    ----------
    columns : sequence of str or int
        Names or numbers of columns; a category is one column.
    domain : Dataset, AttackRules or None
        Only inputs within the ranges of a data set, or within the limits of the rules that `read_attack` gives; None
        means all inputs.
    margin : float
        Only pairs count in which the label of each input is ahead of all others by this margin: a fraction of the
        votes, or for leaves with scores a difference of sums.
    voting : str or None
        One of ``max``, ``average``, ``softargmax``; None chooses by the model.
    budget : Budget or None
        Work allowed for the proof; None means no limit.
    """
    features = [feature for features in _find_columns(model, columns).values() for feature in features]
    space = _make_space(model, domain)
    return _prove_insensitive(model, features, space, margin=margin, voting=voting, budget=budget)


def prove_monotone(
    model: Model,
    directions: Mapping[str | int, str],
    domain: Dataset | AttackRules | None = None,
    *,
    target: str | None = None,
    of: str = "prediction",
    margin: float = 0.0,
    voting: str | None = None,
    budget: Budget | None = None,
) -> Proof:
    """Prove that raising or lowering some columns never harms a label, or find two inputs where it does.

    Parameters
    ----------
    directions : mapping from str or int to str
        ``up`` or ``down`` for names or numbers of columns.
    target : str or None
        The label; None means 1, if the labels are 0 and 1, or -1 and 1.
    of : str
        ``prediction`` or ``score``.

    The other parameters are those of `prove_insensitive`.
    """
    found = _find_columns(model, list(directions))
    by_feature = {feature: directions[column] for column, features in found.items() for feature in features}
    space = _make_space(model, domain)
    return _prove_monotone(model, by_feature, space, target=target, of=of, margin=margin, voting=voting, budget=budget)


def prove_constant(
    model: Model, domain: Dataset | AttackRules, *, voting: str | None = None, budget: Budget | None = None
) -> Proof:
    """Prove that all inputs of a domain get the same prediction, or find two that do not."""
    return _prove_constant(model, _make_space(model, domain), voting=voting, budget=budget)


def find_sufficient(
    model: Model,
    dataset: Dataset,
    domain: Dataset | AttackRules | None = None,
    *,
    voting: str | None = None,
    jobs: int | None = None,
    budget: Budget | None = None,
) -> Sufficiency:
    """A smallest set of columns for each row that alone guarantees its prediction, whatever the others are.

    Parameters
    ----------
    domain : Dataset, AttackRules or None
        The values that the other columns may take, as in `prove_insensitive`.
    """
    space = _make_space(model, domain)
    return _find_sufficient(model, dataset, space, voting=voting, jobs=jobs, budget=budget)


def _find_columns(model: Model, columns: Sequence[str | int]) -> dict[str | int, list[int]]:
    """The features of each column."""
    finder = ColumnFinder(describe_columns(model))
    return {
        column: list(finder.encoding.features_of(finder.find(str(column), "columns")))
        for column in dict.fromkeys(columns)
    }


def _make_space(model: Model, domain: Dataset | AttackRules | None) -> InputSpace:
    if domain is None:
        return InputSpace.of_model(model)
    if isinstance(domain, AttackRules):
        return InputSpace.of_rules(model, domain)
    return InputSpace.around(model, align(model, domain))
