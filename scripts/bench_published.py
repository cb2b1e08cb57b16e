"""Exact minimal l_inf distortion of published XGBoost models, and the time for it; beside it Veritas.

    python scripts/bench_published.py [--folder FOLDER] [--mirror URL] [--sets NAME,NAME] [--kinds NAME,NAME]
        [--rows N] [--limit SECONDS] [--veritas-rows N] [--veritas-limit SECONDS]

The models are those of Chen and others, "Robustness Verification of Tree-based Models" (NeurIPS 2019): trained by
XGBoost as it is ("natural"), and by its robust variant ("robust"). They are fetched from the public repository
formal-trust-AI/ensense, which has them as JSON, and the test rows from chong-z/tree-ensemble-attack. Each file is
checked against the name that git keeps it under. With --folder local copies are used instead, at the paths `models/...`
and `data/...` that this script prints if one is missing. The rows of cod-rna are those of `metasilvae data fetch
cod-rna`. If the file with the images of mnist-2-6 is missing, they are the twos and sixes among the 500 images that the
same repository has for ten digits.

The columns are

    rows          the first --rows test rows, correctly classified or not
    distortion    mean over the rows of the smallest change of all features together that changes the prediction
    exact         rows for which it is known exactly; for the others the proved lower bound enters the mean
    ms a row      processor time, one thread, without reading the files
    Veritas       for the first --veritas-rows rows: the mean of its proved lower bounds and of the distances of the
                  nearest adversarial examples that it found, by its own bisection of 10 steps with at most
                  --veritas-limit seconds for each row, and its processor time; "ours" is the mean distortion of the
                  same rows

Needs the extra `bench` for Veritas; without it, its columns are empty.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import platform
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from metasilvae._version import VERSION
from metasilvae.dataset import Dataset
from metasilvae.datasets.remote import RemoteFile, check_mirror, choose_datasets, fetch_dataset, is_intact, transfer
from metasilvae.errors import MetasilvaeError, MetasilvaeWarning
from metasilvae.formats.datasets import read_dataset
from metasilvae.interop.imports import import_content
from metasilvae.interop.imports.imported import ImportOptions
from metasilvae.io.storage import CACHE_PREFIX, cache_folder
from metasilvae.model import Model
from metasilvae.perturbations.boxes import Ball
from metasilvae.verification.budget import Budget
from metasilvae.verification.query import make_query
from metasilvae.verification.radius import Radii, find_radii

HOMES = {
    "models": "https://raw.githubusercontent.com/formal-trust-AI/ensense/main/models/tree_verification_models/",
    "data": "https://raw.githubusercontent.com/chong-z/tree-ensemble-attack/main/data/",
}
# Their names in the two repositories, and under which git keeps them.
FILES = {
    "models/breast_cancer_unrobust/0004.resaved.json": "b40f9991d66601c67d085548ef053dcbe865eb1c",
    "models/breast_cancer_robust/0004.resaved.json": "78508ec92c02f31a75176e1eac90a802d5f45c49",
    "models/diabetes_unrobust/0020.resaved.json": "de7d6b708e8a723b629e9022676e548db8d33c19",
    "models/diabetes_robust/0020.resaved.json": "ede2576ae802a79e3d3b19bb1f38c148688e25ae",
    "models/cod-rna_unrobust/0080.resaved.json": "0ec3aed5a24e6b07a6d7c6308f5ee3689964a779",
    "models/cod-rna_robust/0080.json": "2b616d035016f21d39cfc13ae18521b0b25a0823",
    "models/ijcnn_unrobust/0060.resaved.json": "5ed49cb74e27da9c26b55392a519dd3110c32a4a",
    "models/ijcnn_robust/0060.resaved.json": "150f1dde5ee16f6433553cb5e093620c6156aecb",
    "models/webspam_unrobust/0100.resaved.json": "1ad0f64191560ab1a6e44bf2af6a0009173e28e1",
    "models/webspam_robust/0100.resaved.json": "b8198900261bb8fa38fab5bc36fd9e0601ea55cc",
    "models/binary_mnist_unrobust/1000.resaved.json": "627e0deee16a71f2d3e12410ab7f202367398ba3",
    "models/binary_mnist_robust/1000.resaved.json": "9d54c12903777169dc7ace89cc75ba1cb297d6eb",
    "data/breast_cancer_scale0.test": "d6fc7d84d71d74833a06fb1d6d6db64d4b5f92ac",
    "data/diabetes_scale0.test": "d7fb3434d19b2b91d64552c59f8ac36184160adf",
    "data/ijcnn1s0.t": "f0dae3a78a01484eb3e89cc8a018774cedcafefe",
    "data/webspam_wc_normalized_unigram.svm0.test": "764b8fa56717fe80dc4d83d4255c9208e9136839",
    "data/binary_mnist0.t": "f56a916b6427a42a858342b57e3a1217db05a421",
    "data/ori_mnist.test0": "b97da7d9c129c64d02cf06dca34e582d55f95e23",
}
# By set: the folder and the file of its models, and its test rows.
SETS = {
    "breast-cancer": ("breast_cancer", "0004.resaved.json", "breast_cancer_scale0.test"),
    "diabetes": ("diabetes", "0020.resaved.json", "diabetes_scale0.test"),
    "cod-rna": ("cod-rna", "0080.resaved.json", "cod-rna/test"),
    "ijcnn": ("ijcnn", "0060.resaved.json", "ijcnn1s0.t"),
    "webspam": ("webspam", "0100.resaved.json", "webspam_wc_normalized_unigram.svm0.test"),
    "mnist-2-6": ("binary_mnist", "1000.resaved.json", "binary_mnist0.t"),
}
KINDS = {"natural": "unrobust", "robust": "robust"}
HEAD = (
    "model", "trees", "leaves", "rows", "distortion", "exact", "ms a row",
    "Veritas: rows", "bounds", "ours", "ms a row",
)  # fmt: skip


@dataclass(frozen=True)
class Store:
    """Where the published files are, or are fetched to."""

    folder: Path
    is_local: bool
    mirror: str | None

    def find(self, name: str) -> Path:
        """The path of a file, which is fetched unless it is there."""
        path = self.folder / name
        if self.is_local:
            if not path.is_file():
                raise MetasilvaeError(f"{path} is missing")
            return path
        checksum = f"git-blob:{FILES[name]}"
        if not is_intact(path, checksum):
            path.parent.mkdir(parents=True, exist_ok=True)
            kind, _, rest = name.partition("/")
            url = HOMES[kind] + rest if self.mirror is None else self.mirror + name
            print(f"fetching {url}", file=sys.stderr, flush=True)
            for _ in transfer(RemoteFile((url,), checksum), path):
                pass
        return path


def read_published_model(store: Store, name: str, kind: str) -> Model:
    folder, file, _ = SETS[name]
    path = f"models/{folder}_{KINDS[kind]}/{file}"
    if path not in FILES:
        # One model is there as a dump only, which holds neither base score nor labels.
        path = path.replace(".resaved", "")
    found = store.find(path)
    labels, base_score = (None, None) if ".resaved" in path else (("0", "1"), (0.5,))
    options = ImportOptions(labels=labels, base_score=base_score)
    return import_content(found.read_bytes(), str(found), None, options).model


def read_published_rows(store: Store, name: str, n_features: int) -> NDArray[np.float64]:
    """Test rows with the features of the model."""
    file = SETS[name][2]
    if name == "cod-rna":
        return read_dataset(find_cod_rna(store, file)).X
    try:
        X = read_dataset(str(store.find(f"data/{file}"))).X
    except MetasilvaeError:
        if name != "mnist-2-6":
            raise
        digits = read_dataset(str(store.find("data/ori_mnist.test0")))
        # The first pixel has the number 1 there, and 0 in the models.
        X = digits.X[np.isin(np.array(digits.labels)[digits.y], ["2", "6"]), 1:]
    # Files of this format leave out zeros, also all those of the last features.
    return np.ascontiguousarray(np.pad(X, ((0, 0), (0, max(n_features - X.shape[1], 0))))[:, :n_features])


def find_cod_rna(store: Store, part: str) -> str:
    """Where the test rows of cod-rna are read from."""
    if store.is_local:
        path = store.folder / "data" / f"{part}.csv.gz"
        if not path.is_file():
            raise MetasilvaeError(f"{path} is missing")
        return str(path)
    for dataset in choose_datasets((part,), store.mirror):
        for _ in fetch_dataset(dataset):
            pass
    return f"{CACHE_PREFIX}{part}"


def measure_ours(model: Model, X: NDArray[np.float64], limit: float) -> tuple[Radii, float]:
    """The distortion of each row, and processor seconds for all of them."""
    rows = Dataset(X, np.zeros(len(X), dtype=np.int32), model.labels)
    query = make_query(model, rows, Ball(1.0))
    start = time.process_time()
    radii = find_radii(query, 1, budget=Budget(seconds=limit))
    return radii, time.process_time() - start


def measure_veritas(model: Model, X: NDArray[np.float64], limit: float) -> tuple[float, float, float]:
    """Means of the lower and the upper bounds, and processor seconds for all rows."""
    import veritas

    lead = veritas.AddTree(1, veritas.AddTreeType.REGR)
    nodes = model.without_directions.nodes
    values = (model.leaf_values[:, 1] - model.leaf_values[:, 0]).tolist()
    for root in model.roots.tolist():
        tree = lead.add_tree()
        todo = [(root, tree.root())]
        while todo:
            ours, theirs = todo.pop()
            threshold, feature, left, right, leaf = nodes[ours].item()
            if feature < 0:
                tree.set_leaf_value(theirs, 0, values[leaf])
            else:
                # It compares x < k.
                tree.split(theirs, feature, math.nextafter(threshold, math.inf))
                todo += [(left, tree.left(theirs)), (right, tree.right(theirs))]
    seconds, bounds = 0.0, []
    for row in X:
        is_ahead = lead.eval(row[np.newaxis])[0, 0] > 0
        search = veritas.VeritasRobustnessSearch(
            row, 1.0, lead if is_ahead else None, None if is_ahead else lead, max_time=limit, silent=True
        )
        start = time.process_time()
        _, lower, _ = search.search()
        seconds += time.process_time() - start
        # A step without a result in time counts as an upper bound there; adversarial examples are upper bounds always.
        found = [np.abs(np.array(example) - row).max() for example in search.generated_examples]
        bounds.append((lower, min(found, default=1.0)))
    means = np.mean(bounds, axis=0)
    return float(means[0]), float(means[1]), seconds


def show_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def compare(store: Store, name: str, kind: str, chosen: argparse.Namespace) -> str:
    """The row of the table for one model."""
    model = read_published_model(store, name, kind)
    X = read_published_rows(store, name, model.n_features)[: chosen.rows]
    radii, seconds = measure_ours(model, X, chosen.limit)
    cells = [f"{name}, {kind}", model.n_trees, model.n_leaves, len(X), f"{radii.lower.mean():.4f}"]
    cells += [int(radii.is_exact.sum()), f"{1000 * seconds / len(X):.2f}"]
    X = X[: chosen.veritas_rows]
    if not len(X) or importlib.util.find_spec("veritas") is None:
        return show_row([*cells, "", "", "", ""])
    lower, upper, seconds = measure_veritas(model, X, chosen.veritas_limit)
    cells += [len(X), f"{lower:.4f} to {upper:.4f}", f"{radii.lower[: len(X)].mean():.4f}"]
    return show_row([*cells, f"{1000 * seconds / len(X):.1f}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="local copies of the files; nothing is fetched")
    parser.add_argument("--mirror", type=check_mirror, help="address to fetch from instead")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each row")
    parser.add_argument("--veritas-rows", type=int, default=20)
    parser.add_argument("--veritas-limit", type=float, default=10.0, help="seconds for each row")
    chosen = parser.parse_args()
    for option, known in (("sets", SETS), ("kinds", KINDS)):
        unknown = set(getattr(chosen, option).split(",")) - set(known)
        if unknown:
            parser.error(f"--{option} {min(unknown)}: known are {', '.join(known)}")
    warnings.simplefilter("ignore", MetasilvaeWarning)
    store = Store(chosen.folder or cache_folder() / "published", chosen.folder is not None, chosen.mirror)
    print(
        f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}; metasilvae {VERSION}, ", end=""
    )
    print(f"one thread, limit {chosen.limit:g} s for each row\n")
    print(f"{show_row(HEAD)}\n|{'---|' * len(HEAD)}", flush=True)
    for name in chosen.sets.split(","):
        for kind in chosen.kinds.split(","):
            try:
                line = compare(store, name, kind, chosen)
            except MetasilvaeError as error:
                line = f"| {name}, {kind} | left out: {error} |"
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
