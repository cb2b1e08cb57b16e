"""Time training and verification on a table as it leaves a database.

    python scripts/bench_customers.py [--rows 30000] [--preset default] [FOLDER]

Writes a synthetic table to FOLDER (a temporary folder by default) and runs on it, on one core,

    metasilvae train customers.csv model.silva --label-column defaulted --attack attack.toml
    metasilvae verify model.silva customers.csv --attack attack.toml

The table has 6 columns of numbers, 8 of categories, an ID, missing cells in 5 columns, and 5 % positive labels. Processor
time is printed, which does not depend on other work of the machine.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ATTACK = """\
[columns]
income = { radius = "5% of value" }
debt = { radius = "5% of value" }
age = { up = 1, down = 0, integer = true }
balance = { radius = 100 }
late_payments = { radius = 1, integer = true, min = 0 }
months = { radius = 1, integer = true, min = 0 }
marital = { any = true }
device = { any = true }
region = { swap = [["north", "east"]] }
"""
CATEGORIES = {
    "region": ("north", "east", "south", "west"),
    "marital": ("single", "married", "divorced"),
    "education": ("school", "college", "university", "other"),
    "job": ("clerk", "nurse", "teacher", "driver", "engineer", "retired", "student", "unemployed"),
    "housing": ("own", "rent", "free"),
    "device": ("phone", "web", "branch"),
    "product": ("basic", "plus", "gold", "student"),
    "contact": ("mail", "phone", "none"),
}


def make_rows(n: int, seed: int = 0) -> list[list[str]]:
    """Header and rows of the table."""
    rng = np.random.default_rng(seed)
    numbers = {
        "income": np.exp(rng.normal(10, 0.6, n)).round(0),
        "debt": np.exp(rng.normal(8, 1.2, n)).round(0),
        "age": rng.integers(18, 90, n).astype(float),
        "balance": rng.normal(1500, 2500, n).round(2),
        "late_payments": rng.poisson(0.7, n).astype(float),
        "months": rng.integers(0, 240, n).astype(float),
    }
    chosen = {name: rng.integers(0, len(values), n) for name, values in CATEGORIES.items()}
    risk = (
        1.5 * np.log(numbers["debt"] / numbers["income"]) + 0.9 * numbers["late_payments"]
        - numbers["balance"] / 3000 + 1.2 * (chosen["job"] == 7) + 0.5 * (chosen["housing"] == 1)
        - 0.01 * numbers["months"]
    )  # fmt: skip
    is_hidden = {name: rng.random(n) < share for name, share in (("income", 0.08), ("debt", 0.03), ("months", 0.2))}
    # Who does not state an income is at a higher risk.
    risk += 1.0 * is_hidden["income"] + rng.logistic(0, 1.0, n)
    label = np.where(risk > np.quantile(risk, 0.95), "yes", "no")
    columns: dict[str, list[str]] = {"customer": [f"C{number:06d}" for number in range(n)]}
    for name, values in numbers.items():
        cells = [f"{value:g}" for value in values.tolist()]
        columns[name] = [
            "" if hide else cell for cell, hide in zip(cells, is_hidden.get(name, np.zeros(n)), strict=True)
        ]
    for name, values in CATEGORIES.items():
        gaps = rng.random(n) < (0.05 if name in ("education", "contact") else 0.0)
        columns[name] = ["" if gap else values[code] for code, gap in zip(chosen[name].tolist(), gaps, strict=True)]
    columns["defaulted"] = label.tolist()
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def run(*words: str) -> float:
    """Run a command and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "metasilvae", *words], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--preset", default="default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, seed in (("customers.csv", 0), ("new.csv", 1)):
            with (folder / name).open("w", newline="") as file:
                csv.writer(file).writerows(make_rows(arguments.rows, seed))
        (folder / "attack.toml").write_text(ATTACK)
        data, model, attack = (str(folder / name) for name in ("customers.csv", "model.silva", "attack.toml"))
        options = ("--attack", attack, "--jobs", "1")
        columns = ("--label-column", "defaulted")
        training = run(
            "train", data, model, *columns, *options, "--preset", arguments.preset, "--test", str(folder / "new.csv")
        )
        verification = run("verify", model, data, *options, "-o", str(folder / "verdicts.txt"))
        print(f"train {training:.1f} s, verify {verification:.2f} s of processor time")


if __name__ == "__main__":
    main()
