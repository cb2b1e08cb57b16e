"""Measure how fast the proved bounds of `prove --stable-share` come together, for random forests of scikit-learn.

    python scripts/bench_stable_share.py [--trees 50] [--depth 4] [--columns 4 10] [--epsilon 0.05] [--seconds 2 20]

Prints for each number of columns and each time limit the boxes that were examined, the two bounds in per cent of the
volume, and the estimate by random inputs. The data are made by `sklearn.datasets.make_classification`.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import metasilvae
from metasilvae.analysis.spaces import InputSpace
from metasilvae.analysis.stable_share import measure_stable_share
from metasilvae.verification.budget import Budget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--columns", type=int, nargs="+", default=[4, 10])
    parser.add_argument("--epsilon", type=float, default=0.05)
    parser.add_argument("--seconds", type=float, nargs="+", default=[2, 20])
    options = parser.parse_args()
    print("columns  seconds   boxes  at least   at most  estimate")
    for n_columns in options.columns:
        X, y = make_classification(
            1500, n_columns, n_informative=min(n_columns, 8), n_redundant=0, random_state=n_columns
        )
        forest = RandomForestClassifier(options.trees, max_depth=options.depth, random_state=0).fit(X, y)
        model = metasilvae.import_object(forest).model
        space = InputSpace.around(model, metasilvae.make_dataset(X, np.array(y, dtype=str)))
        for seconds in options.seconds:
            share = measure_stable_share(model, space, options.epsilon, jobs=1, budget=Budget(seconds))
            estimate = "" if share.estimate is None else f"{100 * share.estimate.share:6.1f} %"
            bounds = f"{100 * share.lower:6.2f} %  {100 * share.upper:6.2f} %"
            print(f"{n_columns:7}  {seconds:7g}  {share.n_boxes:6}  {bounds}  {estimate}", flush=True)


if __name__ == "__main__":
    main()
