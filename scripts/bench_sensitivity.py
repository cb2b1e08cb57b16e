"""Ask for each feature of published XGBoost models whether it can change the prediction, over all finite inputs.

    python scripts/bench_sensitivity.py [--folder FOLDER] [--mirror URL] [--sets NAME,NAME] [--kinds NAME,NAME]
        [--margins M,M] [--limit SECONDS] [--max-features N]

The models are those of bench_published.py. A query is one feature that the model tests and one margin: are there two
inputs that differ in this feature only and get different labels, each ahead by the margin? A margin of 1.386 is a
probability of at least 0.8 for one label at one input, and for the other label at the other. Seconds are processor time
of a query, with joining the trees, without reading the model; one thread.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from bench_published import KINDS, SETS, Store, read_published_model, show_row

from metasilvae._version import VERSION
from metasilvae.analysis.proofs import ProofStatus, prove_insensitive
from metasilvae.datasets.remote import check_mirror
from metasilvae.errors import MetasilvaeError, MetasilvaeWarning
from metasilvae.io.storage import cache_folder
from metasilvae.verification.budget import Budget

HEAD = ("model", "trees", "depth", "margin", "queries", "proved", "refuted", "undecided", "mean s", "longest s")


def ask(store: Store, name: str, kind: str, margin: float, limit: float, max_features: int | None) -> str:
    """The row of the table for one model and one margin."""
    model = read_published_model(store, name, kind).without_directions
    counts: Counter[ProofStatus] = Counter()
    seconds = []
    for feature in model.tested_features[:max_features].tolist():
        start = time.process_time()
        proof = prove_insensitive(model, [feature], margin=margin, budget=Budget(limit))
        seconds.append(time.process_time() - start)
        counts[proof.status] += 1
    cells = [f"{name}, {kind}", model.n_trees, model.max_depth, f"{margin:g}", len(seconds)]
    cells += [counts[status] for status in (ProofStatus.PROVED, ProofStatus.REFUTED, ProofStatus.UNDECIDED)]
    return show_row([*cells, f"{np.mean(seconds):.4f}", f"{max(seconds):.3f}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="local copies of the files; nothing is fetched")
    parser.add_argument("--mirror", type=check_mirror, help="address to fetch from instead")
    parser.add_argument("--sets", default="breast-cancer,diabetes,cod-rna,ijcnn,webspam")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--margins", default="0,1.386")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each query")
    parser.add_argument("--max-features", type=int, help="only the first features that a model tests")
    chosen = parser.parse_args()
    for option, known in (("sets", SETS), ("kinds", KINDS)):
        unknown = set(getattr(chosen, option).split(",")) - set(known)
        if unknown:
            parser.error(f"--{option} {min(unknown)}: known are {', '.join(known)}")
    warnings.simplefilter("ignore", MetasilvaeWarning)
    store = Store(chosen.folder or cache_folder() / "published", chosen.folder is not None, chosen.mirror)
    print(f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}; metasilvae {VERSION}\n")
    print(f"{show_row(HEAD)}\n|{'---|' * len(HEAD)}", flush=True)
    for name in chosen.sets.split(","):
        for kind in chosen.kinds.split(","):
            for margin in map(float, chosen.margins.split(",")):
                try:
                    line = ask(store, name, kind, margin, chosen.limit, chosen.max_features)
                except MetasilvaeError as error:
                    line = f"| {name}, {kind} | left out: {error} |"
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
