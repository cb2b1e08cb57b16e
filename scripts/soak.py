"""Run random commands for minutes or hours, and check results against the oracles of the tests, and memory.

    python scripts/soak.py --minutes 120 --seed 1

`make soak MINUTES=120` installs first what the oracles need (the extra `test`). Each round makes a small problem, runs
commands on it inside this process (so that leaked memory adds up) and compares with plain Python. Exits
with 1 after a wrong result, a crash, or if memory keeps growing. The seed of a failed round is printed, and
`--round SEED` repeats it. To add a kind of round, add a function to `ROUNDS`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.oracles import elect, forest_predictions, random_model

from metasilvae.cli import main as command_line
from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.model import Model

ALLOWED_GROWTH = 32 << 20  # bytes, from the second quarter of the run to the last one
NUMBERS = (0.0, -0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, -1.0, 1 / 3, 1e-9, 1e9)


class Wrong(Exception):
    """An answer that the oracle does not give."""


def require(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


class Round:
    """A folder of its own, a generator, and commands."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng = rng
        self.folder = folder

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def run(self, *words: object) -> None:
        """Run a command that must succeed; its output goes nowhere."""
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            code = command_line([str(word) for word in words], prog_name="metasilvae", standalone_mode=False)
        require(not code, f"{' '.join(map(str, words))}: exit code {code}")

    def rows(self, n_features: int, labels: str, n_rows: int) -> list[tuple[str, list[float]]]:
        rng = self.rng

        def value() -> float:
            return rng.choice([rng.choice(NUMBERS), round(rng.uniform(-2, 4), 2), rng.gauss(1, 2)])

        # The first rows hold all labels, as far as there are rows: nothing can be trained on one class.
        return [
            (labels[row] if row < len(labels) else rng.choice(labels), [value() for _ in range(n_features)])
            for row in range(n_rows)
        ]

    def write_rows(self, rows: list[tuple[str, list[float]]]) -> str:
        path = self.path("rows.csv")
        Path(path).write_text("".join(f"{label},{','.join(map(repr, x))}\n" for label, x in rows))
        return path


def expect_verdicts(model: Model, rows: list[tuple[str, list[float]]], epsilon: float, path: str, voting: str) -> None:
    """Compare a report in JSON lines with the enumeration of all answers inside each box."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()][: len(rows)]
    for (label, x), line in zip(rows, lines, strict=True):
        prediction = elect(model, x, voting)
        predictions = forest_predictions(model, [v - epsilon for v in x], [v + epsilon for v in x], voting)
        names = [model.labels[code] for code in prediction]
        is_correct, is_stable = names == [label], predictions == {prediction}
        verdict = {(1, 1): "ROBUST", (1, 0): "FRAGILE", (0, 1): "VULNERABLE", (0, 0): "BROKEN"}[is_correct, is_stable]
        require(line["prediction"] == names, f"answer {line['prediction']} for {x}, expected {names}")
        require(line["verdict"] == verdict, f"verdict {line['verdict']} for {x}, expected {verdict}")


def verify_model(work: Round) -> None:
    """A random tree or forest: verdicts, and the same ones after the model was simplified."""
    rng = work.rng
    n_trees = rng.choice([1, 1, 2, 3])
    model = random_model(rng, n_trees, max_splits=rng.choice([3, 8, 12]), n_features=rng.choice([1, 2, 3]))
    rows = work.rows(model.n_features, "".join(model.labels), rng.randint(1, 8))
    data, epsilon = work.write_rows(rows), rng.choice([0.0, 0.25, 0.5, 1.0, rng.random()])
    voting = rng.choice(["max", "average"])
    write_model(model, work.path("model.silva"))
    work.run("simplify", work.path("model.silva"), "--voting", voting, "-o", work.path("simple.silva"))
    for name in ("model.silva", "simple.silva"):
        report = work.path("verdicts.jsonl")
        words = ["--epsilon", epsilon, "--voting", voting, "--jobs", rng.choice([1, 2]), "-o", report]
        work.run("verify", work.path(name), data, *words)
        expect_verdicts(model, rows, epsilon, report, "max" if n_trees == 1 else voting)


def train_model(work: Round) -> None:
    """Training on random rows: the same bytes for any number of threads, and verdicts as the oracle gives them."""
    rng = work.rng
    labels = "abcd"[: rng.choice([2, 2, 3, 4])]
    rows = work.rows(rng.choice([1, 2, 3]), labels, rng.randint(4, 60))
    data, epsilon = work.write_rows(rows), rng.choice([0.0, 0.25, rng.random()])
    trees = rng.choice([0, 0, 2, 3])
    options = ["--epsilon", epsilon, "--seed", rng.randrange(1000), "--max-iteration", rng.randint(1, 6)]
    options += ["--trees", trees] if trees else ["--max-leaves", rng.choice([2, 5, 20])]
    outputs = []
    for jobs in (1, 2):
        work.run("train", data, work.path(f"{jobs}.silva"), *options, "--jobs", jobs)
        outputs.append(Path(work.path(f"{jobs}.silva")).read_bytes())
    require(outputs[0] == outputs[1], "another model with another number of threads")
    model = read_model(work.path("1.silva"))
    if model.n_leaves <= 60:
        some = rows[:6]
        work.run(
            "verify", work.path("1.silva"), work.write_rows(some), "--epsilon", epsilon, "-o", work.path("v.jsonl")
        )
        expect_verdicts(model, some, epsilon, work.path("v.jsonl"), "max")


def convert_data(work: Round) -> None:
    """CSV to LIBSVM to binary data and back, without a change."""
    rows = work.rows(work.rng.randint(1, 5), "ab", work.rng.randint(1, 20))
    first = work.write_rows([(label, [v + 0.0 for v in x]) for label, x in rows])
    names = [first, work.path("a.svm"), work.path("b.bin"), work.path("c.csv"), work.path("d.csv")]
    for source, target in pairwise(names):
        work.run("data", "convert", source, target)
    require(Path(names[3]).read_bytes() == Path(names[4]).read_bytes(), "data changed on the way")
    again = [line.split(",") for line in Path(names[4]).read_text().splitlines()[1:]]
    require([(label, [*map(float, x)]) for label, *x in again] == rows, "data differ from those that were written")


def end_by_signal(work: Round) -> None:
    """A training in a process of its own that is told to end, or killed: a whole model or none, and no other file."""
    rng = work.rng
    data = work.write_rows(work.rows(3, "abc", 200))
    before = set(os.listdir(work.folder))
    words = ["train", data, work.path("model.silva"), "--epsilon", "0.1", "--max-iteration", "100000", "--no-manifest"]
    process = subprocess.Popen(
        [sys.executable, "-m", "metasilvae", *words, "--time-limit", "60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    number = rng.choice([signal.SIGINT, signal.SIGTERM])
    time.sleep(rng.uniform(0, 4))
    process.send_signal(number)
    process.wait(timeout=120)
    made = set(os.listdir(work.folder)) - before
    require(made <= {"model.silva"}, f"left behind: {sorted(made)}")
    if made:
        read_model(work.path("model.silva"))


def resume_training(work: Round) -> None:
    """A training that is killed at any moment and resumed: the bytes of the one that was left alone."""
    rng = work.rng
    data = work.write_rows(work.rows(rng.choice([2, 3]), "abc", rng.randint(30, 150)))
    words = ["--epsilon", rng.choice([0.0, 0.25]), "--seed", rng.randrange(1000), "--max-iteration", rng.randint(5, 60)]
    words += ["--trees", 3] if rng.random() < 0.3 else []
    work.run("train", data, work.path("whole.silva"), *words, "--no-manifest")
    keeping = [work.path("resumed.silva"), *words, "--no-manifest", "--checkpoint", work.path("run.checkpoint")]
    keeping += ["--every", rng.choice([1, 3]), "--resume", "auto"]
    for _ in range(rng.randint(1, 3)):
        process = subprocess.Popen(
            [sys.executable, "-m", "metasilvae", "train", data, *map(str, keeping)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.2, 3))
        process.kill()
        process.wait()
    work.run("train", data, *keeping)
    whole, resumed = (Path(work.path(name)).read_bytes() for name in ("whole.silva", "resumed.silva"))
    require(whole == resumed, "the resumed training ends with another model")


ROUNDS: dict[str, tuple[Callable[[Round], None], int]] = {
    "verify": (verify_model, 10),
    "train": (train_model, 6),
    "convert": (convert_data, 3),
    "signal": (end_by_signal, 1),
    "resume": (resume_training, 2),
}


def play(seed: str) -> str:
    """One round; the seed decides everything but the time at which a signal arrives."""
    rng = random.Random(seed)
    drawn = rng.choices(list(ROUNDS), [weight for _, weight in ROUNDS.values()])[0]
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        ROUNDS[drawn][0](Round(rng, folder))
    finally:
        shutil.rmtree(folder)
    return drawn


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_of(sizes: list[int]) -> int:
    """From the second quarter, when everything is loaded, to the last one."""
    quarter = len(sizes) // 4
    if quarter == 0:
        return 0
    return int(statistics.median(sizes[-quarter:]) - statistics.median(sizes[quarter : 2 * quarter]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--round", metavar="SEED", help="repeat one round")
    options = parser.parse_args()
    if options.round:
        print(play(options.round))
        return
    started = time.monotonic()
    counts: Counter[str] = Counter()
    sizes: list[int] = []
    n_wrong = 0
    while time.monotonic() - started < 60 * options.minutes:
        seed = f"{options.seed}.{sum(counts.values()) + n_wrong}"
        try:
            counts[play(seed)] += 1
        except Exception as error:
            n_wrong += 1
            print(f"round {seed}: {error}", flush=True)
            if not isinstance(error, Wrong):
                traceback.print_exc()
        sizes.append(resident_bytes())
    growth = growth_of(sizes)
    print(
        f"{(time.monotonic() - started) / 60:.1f} minutes, {sum(counts.values())} rounds "
        f"({', '.join(f'{kind} {number}' for kind, number in sorted(counts.items()))}), {n_wrong} wrong; "
        f"memory {max(sizes, default=0) >> 20} MiB at most, "
        f"{growth / 2**20:+.1f} MiB from the second quarter to the last"
    )
    sys.exit(bool(n_wrong or growth > ALLOWED_GROWTH))


if __name__ == "__main__":
    main()
