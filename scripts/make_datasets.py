"""Make the data sets that ship with the project: ``datasets/NAME/{train,test}.csv.gz``, index.tsv and README.md.

    python scripts/make_datasets.py [--folder datasets]

Needs scikit-learn, whose package contains the tables of iris, wine, breast-cancer and digits, and palmerpenguins, whose
package contains the table of penguins. The result is reproducible: fixed seeds, no time stamps.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from sklearn import datasets as packaged

from metasilvae.dataset import Dataset
from metasilvae.datasets.splitting import split_dataset
from metasilvae.formats.datasets import read_dataset, write_dataset

SPLIT_SEED = 1
TEST_SHARE = 0.2
CIRCLE_SEED = 1
UCI_LICENCE = "CC BY 4.0"


@dataclass(frozen=True)
class Recipe:
    """How a data set is made, and what its description says."""

    make: Callable[[], tuple[Dataset, Dataset]]
    epsilon: float
    licence: str
    about: str


def make_circle() -> tuple[Dataset, Dataset]:
    """Points of the unit square, "in" the circle or "out" of it; six decimals, labelled after rounding."""
    points = np.random.Generator(np.random.PCG64(CIRCLE_SEED)).random((1100, 2)).round(6)
    is_in = (points**2).sum(axis=1) < 0.5
    dataset = Dataset(points, np.where(is_in, 0, 1).astype(np.int32), ("in", "out"), ("x1", "x2"), "circle")
    return dataset.subset(np.arange(100)), dataset.subset(np.arange(100, 1100))


def take_packaged(name: str) -> Callable[[], tuple[Dataset, Dataset]]:
    """A table of scikit-learn's package, split 80:20 by class."""

    def make() -> tuple[Dataset, Dataset]:
        table = getattr(packaged, f"load_{name}")()
        names = tuple(feature.replace(" (cm)", "").replace(" ", "_") for feature in table.feature_names)
        labels = tuple(str(label) for label in table.target_names)
        dataset = Dataset(
            np.ascontiguousarray(table.data, np.float64), table.target.astype(np.int32), labels, names, name
        )
        return split_dataset(dataset, TEST_SHARE, SPLIT_SEED)

    return make


def take_penguins() -> tuple[Dataset, Dataset]:
    """The table of the palmerpenguins package as it is, with categories and missing values, split 80:20 by class."""
    table = resources.files("palmerpenguins") / "data" / "penguins.csv"
    with resources.as_file(table) as path:
        dataset = read_dataset(str(path), label_column="species")
    return split_dataset(dataset, TEST_SHARE, SPLIT_SEED)


RECIPES = {
    "circle": Recipe(
        make_circle,
        0.02,
        "made by this project, MIT",
        "Points drawn uniformly from the unit square; `in` if and only if x1^2 + x2^2 < 0.5. The training split has "
        "100 points, like the illustration in \"Genetic Adversarial Training of Decision Trees\".",
    ),
    "iris": Recipe(
        take_packaged("iris"),
        0.1,
        UCI_LICENCE,
        "Fisher's measurements of iris flowers in centimetres (R. A. Fisher, 1936; UCI Machine Learning Repository).",
    ),
    "wine": Recipe(
        take_packaged("wine"),
        0.1,
        UCI_LICENCE,
        "Chemical analysis of wines of three cultivars (S. Aeberhard and M. Forina, 1992; UCI Machine Learning "
        "Repository).",
    ),
    "breast-cancer": Recipe(
        take_packaged("breast_cancer"),
        0.01,
        UCI_LICENCE,
        "Breast Cancer Wisconsin (Diagnostic): shapes of cell nuclei (W. Wolberg, O. Mangasarian, N. Street and "
        "W. Street, 1995; UCI Machine Learning Repository).",
    ),
    "digits": Recipe(
        take_packaged("digits"),
        1,
        UCI_LICENCE,
        "Handwritten digits, 8 x 8 counts of pixels from 0 to 16 (E. Alpaydin and C. Kaynak, 1998; test part of the "
        "UCI set \"Optical Recognition of Handwritten Digits\").",
    ),
    "penguins": Recipe(
        take_penguins,
        1,
        "CC0 1.0",
        "Penguins of three species near Palmer Station, Antarctica: island, sex, year and sizes, with two rows without "
        "sizes and eleven without the sex (A. M. Horst, A. P. Hill and K. B. Gorman, 2020: palmerpenguins, "
        "https://allisonhorst.github.io/palmerpenguins/; measured by K. B. Gorman and the Palmer Station Long Term "
        "Ecological Research Program). A table with categories and missing values.",
    ),
}  # fmt: skip
COLUMNS = ("name", "split", "rows", "features", "classes", "epsilon", "sha256")


def describe(name: str, recipe: Recipe, rows: list[tuple[str, ...]]) -> str:
    splits = "\n".join(f"- `{name}/{row[1]}.csv.gz`: {row[2]} rows, sha256 `{row[6]}`" for row in rows)
    return (
        f"## {name}\n\n{recipe.about}\n\n{rows[0][3]} features, {rows[0][4]} classes; "
        f"recommended epsilon {recipe.epsilon:g}. "
        f"Licence: {recipe.licence}.\n\n{splits}\n"
    )


README_HEAD = f"""# Data sets

## Shipped data sets

Every command accepts them by name, for example `builtin:wine/train`; `metasilvae data list` lists them. Each is a CSV
file with column names, the label first and unscaled values; all except `penguins`, which has categories and missing
values, have a `# rows features` line. All except `circle` are split
80:20, stratified by class (seed {SPLIT_SEED}). The recommended epsilon suits the unscaled values. If features have
different ranges (wine, breast-cancer), scale them first with `metasilvae data convert --scale minmax` and use about
0.05.

`scripts/make_datasets.py` makes all files in this folder from scikit-learn's packaged tables, which are copies of the
sets in the UCI Machine Learning Repository, and from the table in the package `palmerpenguins`. `index.tsv` contains
the same facts for programs.

`iris/tree.silva` is a small model for `iris`, named `builtin:iris/tree.silva`: a textbook tree of four leaves that
`scripts/make_demo_model.py` makes from the training rows; MIT, like the rest of the project.

## Downloaded data sets

`metasilvae data fetch NAME` downloads a data set, and every command then accepts `cache:NAME/train` and
`cache:NAME/test`. The paper's data sets, in its splits and scales, come from the authors'
[data-collection](https://github.com/abstract-machine-learning/data-collection), and so do `adult` and `credit` for
questions of fairness. `mnist` comes from a public copy of the original files, `fashion-mnist` from
[its repository](https://github.com/zalandoresearch/fashion-mnist).

- Every file is verified against the checksum in `datasets/downloads.tsv`. An interrupted download is resumed.
- `--mirror URL` downloads from another place (or a folder: `file:///...`); `--offline` never uses the network.
- Files are kept in the cache folder of the platform (`~/.cache/metasilvae`, `~/Library/Caches/metasilvae`,
  `%LOCALAPPDATA%\\metasilvae\\Cache`), or in the folder named by the environment variable `METASILVAE_CACHE`.
- Some of the authors' files announce a wrong number of rows or columns. The actual rows count, and a warning is
  printed.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the data sets that ship with the project.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent.parent / "datasets")
    folder = parser.parse_args().folder
    table = [COLUMNS]
    readme = [README_HEAD]
    for name, recipe in RECIPES.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        rows = []
        for split, dataset in zip(("train", "test"), recipe.make(), strict=True):
            path = folder / name / f"{split}.csv.gz"
            write_dataset(dataset, str(path))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            sizes = (str(dataset.n_samples), str(dataset.n_features), str(dataset.n_labels))
            rows.append((name, split, *sizes, f"{recipe.epsilon:g}", digest))
        table += rows
        readme.append(describe(name, recipe, rows))
    (folder / "index.tsv").write_text("".join("\t".join(row) + "\n" for row in table))
    (folder / "README.md").write_text("\n".join(readme))


if __name__ == "__main__":
    main()
