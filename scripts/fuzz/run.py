"""Feed broken files to readers, and keep those that do not cause a clear error.

    python scripts/fuzz/run.py model --runs 1000000
    python scripts/fuzz/run.py all --runs 10000
    python scripts/fuzz/run.py csv --engine atheris --runs 1000000

The engine `random` needs only metasilvae. `atheris` (pip install atheris) is guided by the coverage of the Python code.
Findings are kept in --findings, and each becomes a test.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

CORPUS = Path(__file__).parent / "corpus"
ADDRESS_SPACE = 4 << 30
LONGEST_SECONDS = 30


class TooLong(Exception):
    """An input that takes longer than it may."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooLong(f"reading took more than {LONGEST_SECONDS} s")


def keep(target: str, content: bytes, folder: Path) -> Path:
    path = folder / f"{target}-{hashlib.sha256(content).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def run_random(target: str, runs: int, seed: int, findings: Path) -> int:
    """Try random changes of the seed files; return the number of different findings."""
    from mutation import mutate
    from targets import seeds, try_one

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _stop)
    started = time.monotonic()
    places: set[str] = set()
    n_taken = 0
    for _, content in zip(range(runs), mutate(random.Random(f"{target} {seed}"), seeds(target)), strict=False):
        signal.alarm(LONGEST_SECONDS)
        try:
            n_taken += try_one(target, content)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {frame.filename}:{frame.lineno}"
            if place not in places:
                places.add(place)
                print(
                    f"{target}: {place}: {str(error)[:200]}; input kept as {keep(target, content, findings)}",
                    flush=True,
                )
        finally:
            signal.alarm(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{target}: {runs} inputs, {n_taken} of them valid, {len(places)} findings, "
        f"{time.monotonic() - started:.0f} s, at most {peak} MiB",
        flush=True,
    )
    return len(places)


def run_atheris(target: str, runs: int, seed: int, findings: Path) -> None:
    """Let atheris look for new paths; it ends the process, at the first finding with an error."""
    import atheris

    with atheris.instrument_imports(include=["metasilvae"]):
        from targets import try_one

    # What it finds of use is there again for the next run.
    corpus = findings / "corpus" / target
    shutil.copytree(CORPUS / target, corpus, dirs_exist_ok=True)
    options = [
        f"-runs={runs}",
        f"-seed={seed + 1}",
        f"-timeout={LONGEST_SECONDS}",
        "-rss_limit_mb=2048",
        "-max_len=4096",
        f"-artifact_prefix={findings}/{target}-",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda content: try_one(target, content))
    atheris.Fuzz()


def main() -> None:
    # By their seeds: atheris must see the readers being imported.
    names = sorted(path.name for path in CORPUS.iterdir())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=["all", *names])
    parser.add_argument("--engine", choices=["random", "atheris"], default="random")
    parser.add_argument("--runs", type=int, default=100_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs to look at")
    options = parser.parse_args()
    # Before metasilvae looks: an input of a few bytes must not take more than this.
    os.environ.setdefault("METASILVAE_MEMORY", "16M")
    if options.engine == "atheris":
        if options.target == "all":
            parser.error("atheris takes one target at a time")
        run_atheris(options.target, options.runs, options.seed, options.findings)
        return
    chosen = names if options.target == "all" else [options.target]
    sys.exit(bool(sum(run_random(target, options.runs, options.seed, options.findings) for target in chosen)))


if __name__ == "__main__":
    main()
