"""Sections about data sets as a whole: key metrics, verdicts, confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate

from metasilvae.analysis.assessment import Assessment
from metasilvae.model import Model
from metasilvae.output.html.content import PageContent, order_labels
from metasilvae.output.html.markup import (
    Child,
    Column,
    Markup,
    element,
    join,
    make_note,
    make_stacking_table,
    make_table,
    put_side_by_side,
    show_fraction,
    show_name,
    show_number,
    show_part,
    wrap_table,
)
from metasilvae.output.text.evaluations import ConfusionTable, choose_worst
from metasilvae.output.text.tables import Record
from metasilvae.verification.objective import PAPER_FITNESS
from metasilvae.verification.verdicts import Verdict

# Counts of rows behind the key metrics.
RATES = {"accuracy": "correct", "stability": "stable", "robust accuracy": "robust"}
# Labels of a confusion matrix; of more than these, only the most frequent mistakes are listed.
MOST_LABELS = 20
MOST_MISTAKES = 30
MOST_LABELS_SIDE_BY_SIDE = 6
TRUE_LABEL = "true label"
# Means over classes, and metrics of each class.
MEANS = ("balanced accuracy", "balanced robust accuracy", "ROC AUC")
CLASS_COLUMNS = ("recall", "precision", "F1", "stability", "robust accuracy", "ROC AUC")
# Shades of the cells of a matrix.
N_SHADES = 8


def show_metrics(content: PageContent) -> Markup:
    """Key metrics as large numbers, then all of them, data sets side by side."""
    sets = content.assessments
    names = [Column(show_name(name), is_number=True) for name in content.short_names]
    rows: list[list[Child]] = [["rows", *(each.outcome.n_samples for each in sets)]]
    for name, count in RATES.items():
        shares = [show_fraction(getattr(each.outcome.counts, count), each.outcome.n_samples) for each in sets]
        rows.append([name, *shares])
    evaluations = [each.evaluation for each in sets]
    for name in MEANS:
        means = [getattr(each.per_class, name.lower().replace(" ", "_")) for each in evaluations]
        rows.append([name, *map(_show_ratio, means)])
    ceilings = [(each.outcome, each.ceiling.robust) for each in sets if each.ceiling is not None]
    if ceilings:
        rows += [
            ["ceiling of robust accuracy", *(show_fraction(robust, each.n_samples) for each, robust in ceilings)],
            ["share of the ceiling", *(show_fraction(each.counts.robust, robust) for each, robust in ceilings)],
        ]
    rows += [
        ["phi", *(show_number(each.phi(PAPER_FITNESS)) for each in evaluations)],
        ["accuracy / leaves", *(show_number(each.accuracy_efficiency) for each in evaluations)],
        ["stability / leaves", *(show_number(each.stability_efficiency or 0.0) for each in evaluations)],
    ]
    return join(
        element("div", map(_make_card, sets), class_="cards"),
        make_table("figures-table", "All metrics", [Column("metric"), *names], rows),
        make_note(
            "Accuracy: fraction of rows whose prediction is the true label and nothing else. Stability: fraction of "
            "rows whose prediction no allowed perturbation changes, which is proved, not sampled. Robust accuracy: "
            "fraction of rows that are both correct and stable. ",
            "Its ceiling: no model has a larger one on these rows, because rows with different labels have common "
            "perturbations. "
            if ceilings
            else None,
            "Balanced: the mean over classes, however many rows they have. ROC AUC: the probability that the model "
            "gives a row of a class a higher score than another row, the mean over classes. "
            "phi = 0.9 accuracy + 0.1 stability.",
        ),
    )


def _make_card(assessment: Assessment) -> Markup:
    counts, dataset = assessment.outcome.counts, assessment.query.dataset
    figures = [
        element("div", element("dt", name), element("dd", show_fraction(getattr(counts, count), counts.size)))
        for name, count in RATES.items()
    ]
    return element(
        "div",
        element("h3", show_name(dataset.source)),
        make_note(f"{counts.size} rows, {dataset.n_features} features"),
        element("dl", figures),
        make_note(f"{counts.no_info} rows are not decided: stability and robust accuracy are lower bounds.")
        if counts.no_info
        else None,
        class_="card",
    )


def show_verdicts(content: PageContent) -> Markup:
    """How many rows have each verdict."""
    counts = [assessment.outcome.counts for assessment in content.assessments]
    shown = [
        verdict for verdict in Verdict if verdict is not Verdict.NO_INFO or any(counts.no_info for counts in counts)
    ]
    columns = [Column("verdict"), *(Column(show_name(name), is_number=True) for name in content.short_names)]
    rows: list[list[Child]] = [
        [_name_verdict(verdict), *(show_part(_count(counts, verdict), counts.size) for counts in counts)]
        for verdict in shown
    ]
    return join(
        [_draw_bar(number, assessment) for number, assessment in enumerate(content.assessments)],
        make_table("verdicts-table", "Rows by verdict", columns, rows),
        [_list_reasons(assessment) for assessment in content.assessments],
    )


def _name_verdict(verdict: Verdict) -> Markup:
    return join(_swatch(verdict), verdict.word, " ", element("small", verdict.meaning, class_="meaning"))


def _count(counts: object, verdict: Verdict) -> int:
    count: int = getattr(counts, verdict.name.lower())
    return count


def _style(verdict: Verdict) -> str:
    return f"v-{verdict.word.lower()}"


def _swatch(verdict: Verdict) -> Markup:
    return element(
        "svg", element("rect", width="100%", height="100%", class_=_style(verdict)), class_="swatch", aria_hidden="true"
    )


def _draw_bar(number: int, assessment: Assessment) -> Markup:
    """Fractions of the verdicts as a bar, with their first letters."""
    counts = assessment.outcome.counts
    by_verdict = [(verdict, _count(counts, verdict)) for verdict in Verdict]
    starts = accumulate((count for _, count in by_verdict), initial=0)
    pieces = []
    for (verdict, count), start in zip(by_verdict, starts, strict=False):
        if not count:
            continue
        percent = 100 * count / counts.size
        left = 100 * start / counts.size
        pieces.append(element("rect", x=f"{left:.4f}%", width=f"{percent:.4f}%", height="100%", class_=_style(verdict)))
        if percent >= 4:
            pieces.append(
                element("text", verdict.word[0], x=f"{left + percent / 2:.4f}%", y="50%", dy="0.35em",
                        text_anchor="middle", class_=f"on-{_style(verdict)}")
            )  # fmt: skip
    described = ", ".join(f"{verdict.word} {count}" for verdict, count in by_verdict if count)
    return element(
        "figure",
        element("figcaption", show_name(assessment.query.dataset.source), id=f"verdict-bar-{number}"),
        element("svg", pieces, class_="bar", role="img", aria_label=described),
    )


def _list_reasons(assessment: Assessment) -> Markup | None:
    reasons = Counter(assessment.outcome.reasons.values())
    if not reasons:
        return None
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return make_note(show_name(assessment.query.dataset.source), f": NO-INFO because of {listed}.")


def show_confusion(content: PageContent) -> Markup:
    """True labels against predictions."""
    matrices = [_show_matrix(content.model, *numbered) for numbered in enumerate(content.assessments)]
    is_narrow = content.model.n_labels <= MOST_LABELS_SIDE_BY_SIDE
    is_any_matrix = any(_has_matrix(content.model, each) for each in content.assessments)
    return join(
        put_side_by_side(matrices) if is_narrow else matrices,
        make_note(
            "Rows are true labels, columns are predictions; ✓ marks correct ones. Tied predictions have own columns."
        )
        if is_any_matrix
        else None,
    )


def show_classes(content: PageContent) -> Markup:
    """Metrics of each class."""
    return join(
        [_tabulate_classes(number, each) for number, each in enumerate(content.assessments)],
        make_note(
            "Recall: fraction of the rows with this label that are predicted correctly. Precision: fraction of the "
            "rows predicted as this label that have it. F1: their harmonic mean. Stability and robust accuracy: "
            "fractions of the rows with this label. Tied predictions count for no class."
        ),
    )


def _tabulate_classes(number: int, assessment: Assessment) -> Markup:
    classes = list(assessment.evaluation.per_class.classes)
    caption: Child = show_name(assessment.query.dataset.source)
    if len(classes) > MOST_LABELS:
        caption = join(caption, f": the {MOST_LABELS} of {len(classes)} classes with the lowest robust accuracy")
        classes = choose_worst(classes, MOST_LABELS)
    else:
        places = {label: place for place, label in enumerate(order_labels(each.label for each in classes))}
        classes.sort(key=lambda each: places[each.label])
    columns = [Column("label"), *(Column(name, is_number=True) for name in ("rows", *CLASS_COLUMNS))]
    rows: list[list[Child]] = [
        [
            show_name(each.label),
            each.rows,
            *(_show_ratio(getattr(each, name.lower().replace(" ", "_"))) for name in CLASS_COLUMNS),
        ]
        for each in classes
    ]
    return make_stacking_table(f"classes-{number}", caption, columns, rows)


def _show_ratio(value: Fraction | None) -> Child:
    return "-" if value is None else show_fraction(value.numerator, value.denominator)


def show_requirements(content: PageContent) -> Markup | None:
    """Which requirements are met on which data set; None if there are none."""
    lines = [
        element(
            "li",
            element("strong", checked.result.name.lower(), class_=f"result {checked.result.name.lower()}"),
            " ",
            element("code", checked.requirement.text),
            [" on ", show_name(name)] if len(content.assessments) > 1 else None,
            ": ",
            show_name(checked.found),
        )
        for name, results in zip(content.short_names, content.requirements, strict=False)
        for checked in results
    ]
    return element("ul", lines, class_="requirements", aria_label="Requirements") if lines else None


def _has_matrix(model: Model, assessment: Assessment) -> bool:
    return max(assessment.query.dataset.n_labels, model.n_labels) <= MOST_LABELS


def _show_matrix(model: Model, number: int, assessment: Assessment) -> Markup:
    dataset, name = assessment.query.dataset, f"confusion-{number}"
    if not _has_matrix(model, assessment):
        return _list_mistakes(name, assessment)
    records = ConfusionTable(model, dataset, assessment.confusion).records()
    labels = order_labels(model.labels)
    ties = [prediction for prediction in list(records[0])[1:] if prediction not in model.labels]
    predictions = labels + ties
    # Labels in the order of the columns; those that the model does not know come last.
    unknown = order_labels(set(dataset.labels).difference(labels))
    places = {label: place for place, label in enumerate(labels + unknown)}
    records.sort(key=lambda record: places[str(record[TRUE_LABEL])])
    head = element(
        "tr",
        element("th", TRUE_LABEL, scope="col"),
        [element("th", show_name(prediction), scope="col", class_="number") for prediction in predictions],
    )
    body = [_show_confusion_of(str(record[TRUE_LABEL]), record, predictions) for record in records]
    parts = [element("thead", head), element("tbody", body)]
    return wrap_table(name, show_name(dataset.source), *parts, style="confusion")


def _show_confusion_of(label: str, record: Record, predictions: Sequence[str]) -> Markup:
    """One row of a matrix; the larger a fraction of the row, the darker."""
    counts = [int(record[prediction] or 0) for prediction in predictions]
    total = max(sum(counts), 1)
    cells = [
        element(
            "td",
            count,
            element("span", " ✓", role="img", aria_label="correct") if prediction == label else None,
            class_=f"number shade-{-(-N_SHADES * count // total)}",
        )
        for prediction, count in zip(predictions, counts, strict=True)
    ]
    return element("tr", element("th", show_name(label), scope="row"), cells)


def _list_mistakes(name: str, assessment: Assessment) -> Markup:
    mistakes = sorted(
        (
            (count, label, prediction)
            for (label, prediction), count in assessment.confusion.items()
            if label != prediction
        ),
        key=lambda mistake: (-mistake[0], mistake[1:]),
    )
    if not mistakes:
        known = f"no mistakes in {assessment.outcome.n_samples} rows"
        return element("p", show_name(assessment.query.dataset.source), f": {known}")
    caption = join(
        show_name(assessment.query.dataset.source),
        f": the most frequent mistakes, {min(len(mistakes), MOST_MISTAKES)} of {len(mistakes)} kinds",
    )
    rows: list[list[Child]] = [
        [show_name(label), show_name(prediction), count] for count, label, prediction in mistakes[:MOST_MISTAKES]
    ]
    return make_table(name, caption, [Column(TRUE_LABEL), Column("prediction"), Column("rows", is_number=True)], rows)
