"""Sections about single rows: the most fragile ones with adversarial examples, features driving instability, and the
changes that give rows a wanted label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metasilvae.analysis.assessment import Assessment, LabelChanges
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
    show_part,
    show_rounded,
)
from metasilvae.output.text.targets import list_changes
from metasilvae.perturbations.norms import LINF
from metasilvae.verification.targets import TargetResults, TargetStatus, find_changes
from metasilvae.verification.verifier import Witness

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
        *_columns_of_rows(dataset),
        *([Column(unit, is_number=True)] if has_radius else []),
        Column("prediction"),
        Column("adversarial example"),
        Column("freeze"),
    ]
    rows = []
    for row in attribution.most_fragile:
        changes = dataset.names.describe_changes(dataset.X[row.row], row.witness.point, row.moved)
        moves = _show_moves(changes) if changes else join("none: clipping to the range suffices")
        cells = _cells_of_row(dataset, row.row)
        if has_radius:
            cells.append(_show_radius(row))
        rows.append([*cells, _show_predictions(content, row.witness), moves, _show_frozen(assessment, row)])
    return make_stacking_table(f"fragile-{number}", caption, columns, rows)


def _columns_of_rows(dataset: Dataset) -> list[Column]:
    """The columns that say which row it is."""
    return [
        Column("row", is_number=True),
        *(Column(name) for name, _ in dataset.ids),
        *([Column("line", is_number=True)] if dataset.line_of_row is not None else []),
        Column("label"),
    ]


def _cells_of_row(dataset: Dataset, row: int) -> list[Child]:
    cells: list[Child] = [dataset.number_of(row), *map(show_name, dataset.ids_of(row).values())]
    if dataset.line_of_row is not None:
        cells.append(int(dataset.line_of_row[row]))
    return [*cells, show_name(dataset.labels[dataset.y[row]])]


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


def _show_predictions(content: PageContent, witness: Witness) -> Markup:
    before, after = (
        list_names([content.model.labels[label] for label in labels])
        for labels in (witness.prediction, witness.perturbed_prediction)
    )
    return join(before, " → ", element("strong", after))


def _show_moves(changes: Sequence[tuple[str, str | float, str | float]]) -> Markup:
    """Each column that changes, with its old and new value."""
    items = [
        element("li", show_name(name), " ", _show_value(before, after), " → ", _show_value(after, before))
        for name, before, after in changes[:MOST_MOVES]
    ]
    if len(changes) > MOST_MOVES:
        items.append(element("li", f"and {len(changes) - MOST_MOVES} more"))
    return element("ul", items, class_="moves")


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


def show_changes(content: PageContent) -> Markup | None:
    """How rows get a wanted label: counts, and the rows that need the smallest changes; None if no label is wanted."""
    found = [(each, each.changes) for each in content.assessments if each.changes is not None]
    if not found:
        return None
    results = [changes.results for _, changes in found]
    has_distance = [each.distances is not None for each in results]
    nearest = (
        "It is proved that no smaller change does; ≥ marks a proved lower bound where the search ended before it "
        "was known."
        if all(has_distance)
        else "The perturbation has no radii to compare changes by, so that any change within it is shown."
    )
    return join(
        _count_statuses(content, results),
        [_tabulate_changes(content, number, *each) for number, each in enumerate(found)],
        make_note(
            "Each change keeps to the threat model, and was checked by classifying the changed row: its prediction is ",
            show_name(content.target or ""),
            f" and no other label. {nearest} Numbers are rounded; `metasilvae verify --target",
            " --radius" if any(has_distance) else None,
            " --counterexamples FILE` writes all digits.",
        ),
    )


def _count_statuses(content: PageContent, results: Sequence[TargetResults]) -> Markup:
    shown = [s for s in TargetStatus if s is not TargetStatus.NO_INFO or any(each.counts[s] for each in results)]
    rows: list[list[Child]] = [
        [
            join(status.word, " ", element("small", status.meaning, class_="meaning")),
            *(show_part(each.counts[status], each.n_samples) for each in results),
        ]
        for status in shown
    ]
    columns = [Column("rows"), *(Column(show_name(name), is_number=True) for name in content.short_names)]
    return make_table("targets-table", "Rows that can get the label", columns, rows)


def _tabulate_changes(content: PageContent, number: int, assessment: Assessment, changes: LabelChanges) -> Markup:
    dataset, results = assessment.query.dataset, changes.results
    n_reachable = results.counts[TargetStatus.REACHABLE]
    rows = np.array(changes.nearest_rows(content.n_rows), dtype=np.intp)
    if not len(rows):
        what = f"{n_reachable} rows can get the label by a change"
        if not n_reachable:
            has_all = results.counts[TargetStatus.PREDICTED] == results.n_samples
            what = "no row needs a change" if has_all else "no row is known to get the label by a change"
        return element("p", show_name(dataset.source), f": {what}")
    order = "the smallest changes" if results.distances is not None else "changes within the perturbation"
    caption = join(show_name(dataset.source), f": {order} of {len(rows)} of {n_reachable} rows that can get the label")
    limit = changes.query.boxes.limit
    distance = f"distance, {LINF if limit is None else limit.norm}"
    if not assessment.is_over_epsilon:
        distance = "distance, in multiples of the attack"
    columns = [
        *_columns_of_rows(dataset),
        *([Column(distance, is_number=True)] if results.distances is not None else []),
        Column("prediction"),
        Column("changes"),
    ]
    table = []
    part = changes.query.subset(rows)
    for change in find_changes(part, results.subset(rows)):
        row = int(rows[change.row])
        cells = _cells_of_row(dataset, row)
        if results.distances is not None:
            cells.append(_show_distance(results, row))
        moves = _show_moves(list_changes(part.dataset, change))
        table.append([*cells, _show_predictions(content, change), moves])
    return make_stacking_table(f"changes-{number}", caption, columns, table)


def _show_distance(results: TargetResults, row: int) -> Child:
    """The distance of a nearest change, or bounds."""
    assert results.distances is not None
    assert results.at_least is not None
    shown = show_number(float(results.distances[row]))
    if results.is_nearest[row]:
        return shown
    return join("≥ ", show_number(float(results.at_least[row])), ", this one ", shown)
