"""Sections about unstable rows: the most fragile ones with adversarial examples, and features driving instability."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.analysis.assessment import Assessment
from metasilvae.analysis.explanation import UnstableRow
from metasilvae.dataset import Dataset
from metasilvae.output.html.content import PageContent
from metasilvae.output.html.markup import (
    Child,
    Column,
    Markup,
    element,
    join,
    list_names,
    make_note,
    make_stacking_table,
    make_table,
    put_side_by_side,
    show_name,
    show_number,
    show_rounded,
)

MOST_MOVES = 6
MOST_FEATURES = 15
MOST_TESTS = 15


def show_fragile_rows(content: PageContent) -> Markup:
    """For each data set the rows with the smallest certified radii."""
    is_any_shown = any(each.attribution.most_fragile for each in content.assessments)
    return join(
        [_tabulate_rows(content, number, each) for number, each in enumerate(content.assessments)],
        make_note(
            "Each row is shown with an adversarial example: an allowed perturbation with another prediction, which was "
            "checked by classifying it. With the features of the last column frozen at their values, no allowed "
            "perturbation changes the prediction. Numbers are rounded; `metasilvae verify --counterexamples FILE` "
            "writes all digits."
        )
        if is_any_shown
        else None,
    )


def _tabulate_rows(content: PageContent, number: int, assessment: Assessment) -> Markup:
    dataset, attribution = assessment.query.dataset, assessment.attribution
    caption = join(show_name(dataset.source), f": {_describe_extent(assessment)}")
    if not attribution.most_fragile:
        return element("p", caption)
    # Without a curve, the unit of the radii is not known if some rows do not fit the attack.
    has_unit = assessment.is_over_epsilon or assessment.curve is not None
    has_radius = has_unit and any(row.radius is not None for row in attribution.most_fragile)
    unit = "certified radius" if assessment.is_over_epsilon else "certified radius, in multiples of the attack"
    columns = [
        Column("row", is_number=True),
        *(Column(name) for name, _ in dataset.ids),
        *([Column("line", is_number=True)] if dataset.line_of_row is not None else []),
        Column("label"),
        *([Column(unit, is_number=True)] if has_radius else []),
        Column("prediction"),
        Column("adversarial example"),
        Column("freeze"),
    ]
    rows = []
    for row in attribution.most_fragile:
        cells: list[Child] = [dataset.number_of(row.row), *map(show_name, dataset.ids_of(row.row).values())]
        if dataset.line_of_row is not None:
            cells.append(int(dataset.line_of_row[row.row]))
        cells.append(show_name(dataset.labels[dataset.y[row.row]]))
        if has_radius:
            cells.append(_show_radius(row))
        cells += [_show_predictions(content, row), _show_moves(assessment, row), _show_frozen(assessment, row)]
        rows.append(cells)
    return make_stacking_table(f"fragile-{number}", caption, columns, rows)


def _show_radius(row: UnstableRow) -> Child:
    if row.radius is None:
        return "-"
    shown = show_number(row.radius)
    return shown if row.has_exact_radius else element("span", "\u2265 ", shown)


def _describe_extent(assessment: Assessment) -> str:
    n_shown, n_unstable = len(assessment.attribution.most_fragile), assessment.outcome.counts.unstable
    if not n_unstable:
        return "no row is unstable"
    n_explained = assessment.attribution.n_explained
    among = "" if n_explained == n_unstable else f", chosen among the {n_explained} explained ones"
    return f"{n_shown} of {n_unstable} unstable rows{among}"


def _show_predictions(content: PageContent, row: UnstableRow) -> Markup:
    before, after = (
        list_names([content.model.labels[label] for label in labels])
        for labels in (row.witness.prediction, row.witness.perturbed_prediction)
    )
    return join(before, " → ", element("strong", after))


def _show_moves(assessment: Assessment, row: UnstableRow) -> Markup:
    """Each column that changes, with its old and new value."""
    dataset = assessment.query.dataset
    changes = dataset.names.describe_changes(dataset.X[row.row], row.witness.point, row.moved)
    items = [
        element("li", show_name(name), " ", _show_value(before, after), " → ", _show_value(after, before))
        for name, before, after in changes[:MOST_MOVES]
    ]
    if len(changes) > MOST_MOVES:
        items.append(element("li", f"and {len(changes) - MOST_MOVES} more"))
    return element("ul", items, class_="moves") if items else join("none: clipping to the range suffices")


def _show_value(value: str | float, other: str | float) -> Child:
    """A value before or after a change; numbers have so many digits that both differ."""
    if isinstance(value, str):
        return show_name(value)
    return show_rounded(value, *([] if isinstance(other, str) else [other]))


def _show_test(dataset: Dataset, feature: int, threshold: float, others: Sequence[float] = ()) -> Child:
    """A test in words; that a category is a certain one is said of the branch where it is.

    `others` are thresholds of the same feature, from which this one differs in the digits that are shown.
    """
    if dataset.names.is_number(feature):
        return join(show_name(dataset.feature_name(feature)), " ≤ ", show_rounded(threshold, *others))
    return show_name(dataset.names.describe_test(feature, threshold)[1])


def _show_frozen(assessment: Assessment, row: UnstableRow) -> Markup:
    features = row.frozen.features
    if features is None:
        return join("impossible" if row.frozen.is_smallest else "unknown")
    names = list_names([assessment.query.dataset.feature_name(feature) for feature in features], MOST_MOVES)
    return join(names, None if row.frozen.is_smallest else " (possibly fewer)")


def show_attribution(content: PageContent) -> Markup:
    """Features and tests that the adversarial examples of unstable rows have in common."""
    is_any_explained = any(each.attribution.n_explained for each in content.assessments)
    return join(
        [_attribute(content, number, each) for number, each in enumerate(content.assessments)],
        make_note(
            "Changed: unstable rows whose nearest known adversarial example changes the feature. Frozen: unstable rows "
            "whose smallest set of features to freeze contains it. Tests: unstable rows whose adversarial example "
            "flips this test."
        )
        if is_any_explained
        else None,
    )


def _attribute(content: PageContent, number: int, assessment: Assessment) -> Markup:
    dataset, found = assessment.query.dataset, assessment.attribution
    n_unstable = assessment.outcome.counts.unstable
    if not found.n_explained:
        missing = "no row is unstable" if not n_unstable else f"none of {n_unstable} unstable rows was explained"
        return element("p", show_name(dataset.source), f": {missing}")
    features = sorted(found.moved | found.frozen, key=lambda feature: (-found.moved[feature], feature))
    tests = sorted(found.crossed, key=lambda test: (-found.crossed[test], test))
    of_rows = f"of {found.n_explained} unstable rows"
    thresholds: dict[int, list[float]] = {}
    for feature, threshold in tests[:MOST_TESTS]:
        thresholds.setdefault(feature, []).append(threshold)
    by_feature = make_table(
        f"features-{number}",
        join(show_name(dataset.source), f": features, {_describe_part(features, MOST_FEATURES)}"),
        [Column("feature"), Column("changed", is_number=True), Column(of_rows), Column("frozen", is_number=True)],
        [
            [
                show_name(dataset.feature_name(feature)),
                found.moved[feature],
                _draw_fraction(found.moved[feature], found.n_explained),
                found.frozen[feature],
            ]
            for feature in features[:MOST_FEATURES]
        ],
    )
    by_test = make_table(
        f"tests-{number}",
        join(show_name(dataset.source), f": tests, {_describe_part(tests, MOST_TESTS)}"),
        [Column("test"), Column("rows", is_number=True), Column(of_rows)],
        [
            [
                element("span", _show_test(dataset, feature, threshold, thresholds[feature]), class_="test"),
                found.crossed[feature, threshold],
                _draw_fraction(found.crossed[feature, threshold], found.n_explained),
            ]
            for feature, threshold in tests[:MOST_TESTS]
        ],
    )
    return put_side_by_side([by_feature, by_test])


def _describe_part(items: Sequence[object], most: int) -> str:
    return f"{most} of {len(items)}" if len(items) > most else f"all {len(items)}"


def _draw_fraction(count: int, total: int) -> Markup:
    bar = element("rect", width=f"{100 * count / total:.4f}%", height="100%", class_="share")
    return element("svg", bar, class_="share-bar", role="img", aria_label=f"{100 * count / total:.0f} %")
