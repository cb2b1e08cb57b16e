"""Measure the time to verify a single tree and of the whole command, also of silva if its path is given.

    python scripts/bench_verify.py [--silva PATH] [--data FOLDER] [--models FOLDER] [--repeat N]

The analysis is timed by each program itself (silva: the time in its summary), on one thread; the whole command is
timed from outside, from start to exit, with the report discarded. The best of N runs counts for both programs.
Cases without data or model are skipped with a message.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


@dataclass(frozen=True)
class Case:
    data: str
    model: str
    epsilon: str


CASES = [
    Case("cod-rna", "cod-rna-tree.silva", "0.025"),
    Case("mnist-1-5", "mnist-1-5-tree.silva", "77"),
    # 10000 x 784 rows; a tree for two of the ten digits, which makes no difference to the work.
    Case("mnist", "mnist-1-5-tree.silva", "77"),
]


@dataclass(frozen=True)
class Timing:
    analysis: float
    command: float

    def best(self, other: Timing | None) -> Timing:
        if other is None:
            return self
        return Timing(min(self.analysis, other.analysis), min(self.command, other.command))


def time_ours(model: Path, data: Path, epsilon: str) -> Timing:
    command = [sys.executable, "-m", "metasilvae", "verify", str(model), str(data), "--epsilon", epsilon, "--jobs", "1"]
    start = time.perf_counter()
    subprocess.run([*command, "--format", "silva"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    report = subprocess.run([*command, "--format", "json"], check=True, capture_output=True).stdout
    return Timing(json.loads(report)["seconds"], seconds)


def time_silva(silva: Path, model: Path, data: Path, epsilon: str) -> Timing:
    start = time.perf_counter()
    report = subprocess.run(
        [str(silva), str(model), str(data), "--perturbation", "l_inf", epsilon],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    seconds = time.perf_counter() - start
    return Timing(float(report.splitlines()[-1].split()[2]), seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silva", type=Path, help="path to the silva program")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="folder with one folder for each data set")
    parser.add_argument("--models", type=Path, default=SHARED / "golden" / "models")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    print(f"{machine}; best of {arguments.repeat}, one thread")
    print(f"{'data':12} {'rows':>7} {'program':>10} {'analysis s':>11} {'command s':>10}   ratios silva / ours")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            packed, model = arguments.data / case.data / "test.csv.gz", arguments.models / case.model
            if not packed.exists() or not model.exists():
                print(f"{case.data:12} left out: {packed if not packed.exists() else model} is missing")
                continue
            data = Path(folder) / f"{case.data}.csv"
            with gzip.open(packed) as source, data.open("wb") as target:
                shutil.copyfileobj(source, target)
            n_rows = sum(not line.startswith(b"#") for line in data.open("rb"))
            ours = theirs = None
            for _ in range(arguments.repeat):
                ours = time_ours(model, data, case.epsilon).best(ours)
                if arguments.silva:
                    theirs = time_silva(arguments.silva, model, data, case.epsilon).best(theirs)
            assert ours is not None
            print(f"{case.data:12} {n_rows:>7} {'metasilvae':>10} {ours.analysis:>11.4f} {ours.command:>10.3f}")
            if theirs is not None:
                ratios = (
                    f"{theirs.analysis / ours.analysis:.1f} x analysis, {theirs.command / ours.command:.1f} x command"
                )
                print(f"{'':12} {'':>7} {'silva':>10} {theirs.analysis:>11.4f} {theirs.command:>10.3f}   {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
