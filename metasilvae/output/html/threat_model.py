"""The section about the threat model, if a file defines it and not the command line."""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.analysis.assessment import Assessment
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
    make_table,
    show_name,
)
from metasilvae.output.text.datasets import list_rules
from metasilvae.perturbations.attack import Attack
from metasilvae.perturbations.boxes import BoxFile
from metasilvae.perturbations.norms import allowed_changes

# Maximum number of rules in the table, each for all of its columns.
MOST_RULES = 40


def list_perturbation_files(content: PageContent) -> list[tuple[str, str, str]]:
    """Kind, name and fingerprint of each file that defines a perturbation."""
    found = []
    for each in content.assessments:
        allowed = allowed_changes(each.perturbation)
        if isinstance(allowed, Attack):
            kind, name = "attack", allowed.source
        elif isinstance(allowed, BoxFile):
            kind, name = "boxes", allowed.path
        else:
            continue
        found.append((kind, name, each.query.boxes.fingerprint(each.query.dataset)))
    return list(dict.fromkeys(found))


def show_perturbation(content: PageContent) -> Markup | None:
    """The changes that files allow, in words; None if the command line has no file."""
    parts: list[Markup] = []
    by_mark: dict[str, list[Assessment]] = {}
    for each in content.assessments:
        allowed = allowed_changes(each.perturbation)
        if isinstance(allowed, Attack):
            by_mark.setdefault(each.query.boxes.fingerprint(each.query.dataset), []).append(each)
        elif isinstance(allowed, BoxFile):
            parts.append(_describe_boxes(each, allowed))
    for number, sharing in enumerate(by_mark.values()):
        attack = allowed_changes(sharing[0].perturbation)
        if isinstance(attack, Attack):
            parts.append(_tabulate_rules(number, attack, sharing))
    return join(parts) if parts else None


def _describe_boxes(assessment: Assessment, perturbation: BoxFile) -> Markup:
    dataset, boxes = assessment.query.dataset, assessment.query.boxes
    n_moving = int((boxes.low_center < boxes.high_center).any(axis=0).sum())
    return element(
        "p",
        "Each row of ",
        show_name(dataset.source),
        " may be perturbed to any row inside its own box, given by a line of ",
        show_name(perturbation.path),
        f": a lower and an upper bound per column. {n_moving} of {dataset.n_features} columns can change in some row.",
    )


def _tabulate_rules(number: int, attack: Attack, sharing: Sequence[Assessment]) -> Markup:
    """One line for each rule and all columns that it holds for; the data sets have the same rules."""
    rules = _group_columns(attack, sharing[0].query.dataset)
    rows: list[list[Child]] = [[list_names(names), words] for words, names in rules[:MOST_RULES]]
    caption = join(
        show_name(attack.source), f": allowed changes per column, all of them at once{_describe_rest(len(rules))}"
    )
    satisfying = [
        join("; " if place else "", f"all {each.outcome.n_samples} rows of ", show_name(each.query.dataset.source))
        for place, each in enumerate(sharing)
    ]
    return join(
        make_table(f"attack-{number}", caption, [Column("columns"), Column("allowed changes")], rows),
        make_note("No value can change: every model is stable under this attack.") if attack.is_idle else None,
        make_note("Rows that satisfy these constraints: ", satisfying, "."),
    )


def _describe_rest(n_rules: int) -> str:
    return f"; {MOST_RULES} of {n_rules} rules" if n_rules > MOST_RULES else ""


def _group_columns(attack: Attack, dataset: Dataset) -> list[tuple[str, list[str]]]:
    """Allowed changes in words, and the names of their columns; groups of several columns last."""
    found: dict[str, list[str]] = {}
    groups = []
    for names, words in list_rules(attack, dataset):
        if len(names) == 1:
            found.setdefault(words, []).extend(names)
        else:
            groups.append((words, names))
    return [*found.items(), *groups]
