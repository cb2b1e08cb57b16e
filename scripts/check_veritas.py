"""Ask Veritas the same questions about targets and sensitivity, and count answers that differ.

    python scripts/check_veritas.py [--trees 15] [--depth 5] [--pair-trees 9] [--pair-depth 3] [--rows 100]
        [--limit SECONDS]

For random forests of scikit-learn whose trees vote (`--voting max`), trained on the built-in data sets:

    targets       whether a row can get each other label within epsilon in the maximum norm, as `verify --target`
                  decides it; Veritas maximizes the smallest lead of this label over all others
    sensitivity   whether two inputs that differ in one feature only get different predictions, as `prove
                  --insensitive-to` decides it, on the models of two labels; Veritas searches both inputs at once

Votes are whole numbers, so that both programs compare them exactly. Prints the number of questions, those answered
yes, those that Veritas did not decide within the limit, those that differ, and the processor time of both. The exit
code is 1 if an answer differs. Needs the extra `bench`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import metasilvae
from metasilvae.analysis.proofs import ProofStatus, prove_insensitive
from metasilvae.analysis.spaces import InputSpace
from metasilvae.dataset import Dataset
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.query import make_query
from metasilvae.verification.targets import TargetStatus, find_targets

# Data sets with the epsilon of targets.
SETS = {"iris": 0.3, "digits": 2.0, "breast-cancer": 0.05, "circle": 0.2}
Answers = list[bool | None]


class Question:
    """Trees of Veritas whose outputs are scores; asks whether the first one can exceed all others."""

    def __init__(self, n_scores: int) -> None:
        import veritas

        self.trees = veritas.AddTree(n_scores, veritas.AddTreeType.REGR)

    def add(self, model: Model, scores: np.ndarray, features: dict[int, int] | None = None) -> None:
        """Add the trees of a model.

        Parameters
        ----------
        scores : array, shape (n_leaves, n_scores)
        features : dict or None
            Other numbers of some features.
        """
        for root in model.roots.tolist():
            tree = self.trees.add_tree()
            todo = [(root, tree.root())]
            while todo:
                ours, theirs = todo.pop()
                threshold, feature, left, right, leaf = model.nodes[ours].item()
                if feature < 0:
                    for place, score in enumerate(scores[leaf].tolist()):
                        tree.set_leaf_value(theirs, place, score)
                else:
                    number = (features or {}).get(feature, feature)
                    tree.split(theirs, number, math.nextafter(threshold, math.inf))
                    todo += [(left, tree.left(theirs)), (right, tree.right(theirs))]

    def ask(self, lower: np.ndarray, upper: np.ndarray, limit: float) -> bool | None:
        """Whether the first score can exceed all others between bounds; None if the limit ended the search."""
        import veritas

        box = [veritas.Interval(a, math.nextafter(b, math.inf)) for a, b in zip(lower, upper, strict=True)]
        config = veritas.Config(veritas.HeuristicType.MULTI_MAX_MAX_OUTPUT_DIFF)
        # Leads are whole numbers, and a half is above 0 and below 1.
        config.ignore_state_when_worse_than = 0.5
        config.stop_when_optimal = False
        config.stop_when_num_solutions_exceeds = 1
        search: Any = config.get_search(self.trees, box)
        reason = search.step_for(limit, 100)
        if search.num_solutions() > 0:
            return bool(search.get_solution(0).output > 0.5)
        return False if reason == veritas.StopReason.NO_MORE_OPEN else None


def count_votes(model: Model) -> np.ndarray:
    """The votes of each leaf, shape (n_leaves, n_labels)."""
    votes = np.zeros((model.n_leaves, model.n_labels))
    for leaf, number in enumerate(model.leaf_predictions.ids.tolist()):
        votes[leaf, list(model.leaf_predictions.sets[number])] = 1.0
    return votes


def compare_targets(
    model: Model, dataset: Dataset, epsilon: float, limit: float
) -> tuple[Answers, Answers, float, float]:
    """Answers of both programs, and their processor times."""
    ours: Answers = []
    theirs: Answers = []
    query = make_query(model, dataset, Ball(epsilon), voting="max")
    votes, seconds = count_votes(model), [0.0, 0.0]
    for target in range(model.n_labels):
        start = time.process_time()
        results = find_targets(query, target, 1)
        seconds[0] += time.process_time() - start
        question = Question(model.n_labels)
        order = [target, *(label for label in range(model.n_labels) if label != target)]
        question.add(model, votes[:, order])
        for row, status in enumerate(results.statuses.tolist()):
            if status == TargetStatus.PREDICTED:
                continue
            ours.append(status == TargetStatus.REACHABLE)
            start = time.process_time()
            theirs.append(question.ask(*query.boxes.bounds(row), limit))
            seconds[1] += time.process_time() - start
    return ours, theirs, *seconds


def compare_sensitivity(model: Model, dataset: Dataset, limit: float) -> tuple[Answers, Answers, float, float]:
    """The same for pairs of inputs that differ in one feature, within the ranges of the data."""
    ours: Answers = []
    theirs: Answers = []
    space = InputSpace.around(model, dataset)
    votes, seconds = count_votes(model), [0.0, 0.0]
    lead = votes[:, 0] - votes[:, 1]
    nothing = np.zeros(len(lead))
    for feature in range(model.n_features):
        start = time.process_time()
        # A half vote tells predictions apart from ties, which have two labels.
        proof = prove_insensitive(model, [feature], space, margin=0.5 / model.n_trees, voting="max")
        seconds[0] += time.process_time() - start
        ours.append(proof.status is ProofStatus.REFUTED)
        start = time.process_time()
        question = Question(3)
        # Both leads, of the first label at one input and of the second label at the other one, are to exceed 0.
        question.add(model, np.stack([nothing, -lead, nothing], axis=1))
        question.add(model, np.stack([nothing, nothing, lead], axis=1), {feature: model.n_features})
        lower, upper = (np.append(ends, ends[feature]) for ends in (space.lower, space.upper))
        theirs.append(question.ask(lower, upper, limit))
        seconds[1] += time.process_time() - start
    return ours, theirs, *seconds


def train_forest(dataset: Dataset, n_trees: int, depth: int) -> Model:
    """A random forest whose trees vote."""
    forest = RandomForestClassifier(n_trees, max_depth=depth, random_state=0)
    labels = np.array(dataset.labels)
    model = metasilvae.import_object(forest.fit(dataset.X, labels[dataset.y]), check=False).model
    return replace(model, description=replace(model.description, voting="max"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trees", type=int, default=15)
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--pair-trees", type=int, default=9, help="trees of the models for sensitivity")
    parser.add_argument("--pair-depth", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100, help="test rows of each data set")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of Veritas for each question")
    options = parser.parse_args()
    print(
        f"{'question, data':28} {'asked':>6} {'yes':>6} {'undecided':>9} {'differ':>6} {'ours s':>8} {'Veritas s':>9}"
    )
    n_differing = 0
    for name, epsilon in SETS.items():
        training = metasilvae.read_dataset(f"builtin:{name}/train")
        test = metasilvae.read_dataset(f"builtin:{name}/test")
        test = test.subset(np.arange(min(options.rows, test.n_samples)))
        model = train_forest(training, options.trees, options.depth)
        cases = {"targets": compare_targets(model, test, epsilon, options.limit)}
        if model.n_labels == 2:
            small = train_forest(training, options.pair_trees, options.pair_depth)
            cases["sensitivity"] = compare_sensitivity(small, training, options.limit)
        for question, (ours, theirs, our_seconds, their_seconds) in cases.items():
            n_open = theirs.count(None)
            differing = sum(b is not None and a != b for a, b in zip(ours, theirs, strict=True))
            n_differing += differing
            print(
                f"{f'{question}, {name}':28} {len(ours):6} {ours.count(True):6} {n_open:9} {differing:6} "
                f"{our_seconds:8.2f} {their_seconds:9.2f}",
                flush=True,
            )
    return 1 if n_differing else 0


if __name__ == "__main__":
    sys.exit(main())
