"""Repeat the experiments of the paper: run what is missing, then write docs/paper.md and its plots.

    python scripts/paper.py [--quick] [--only NAME,NAME] [--sets NAME,NAME] [--data FOLDER] [--jobs N] [--seed N]

Every finished task is a file in the results folder (paper-output), keyed by its settings, the data and the version of
metasilvae; a rerun completes what is missing, also after a crash. Without --data, or if the folder lacks a set, data
come from the cache of `metasilvae data fetch`, else from their source; unavailable sets are skipped with a message.

The document lists what is missing, also if --only or --sets exclude it. With --quick it is written into the results
folder. Test rows choose nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from bench_train import SHARED
from experiments.document import DOCUMENT, render
from experiments.figures import draw_figures
from experiments.runs import describe_origin, prepare_worker, run_task
from experiments.store import Bundle, FoundData, Store, find_all_data, list_other_sets, pack
from experiments.tasks import EXPERIMENTS, MODES, PAPER_EPSILONS, Request, Task, plan_tasks
from tqdm import tqdm

from metasilvae.errors import DataError, MetasilvaeError, ModelError
from metasilvae.extras import load_library
from metasilvae.io.storage import check_output, prepare_folder, write_output

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sets, few seeds: some minutes")
    parser.add_argument("--only", default=",".join(EXPERIMENTS), metavar="NAME,NAME", help="experiments to run")
    parser.add_argument("--sets", metavar="NAME,NAME", help="data sets to run them on")
    parser.add_argument("--data", type=Path, help="folder with one folder for each set (train.csv.gz, test.csv.gz)")
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    parser.add_argument("--jobs", type=int, default=1, help="tasks at a time, each on one thread")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--output", type=Path, default=Path("paper-output"), help="folder of the results")
    parser.add_argument("--document", type=Path, help="document to write; its figures go into a folder beside it")
    arguments = parser.parse_args(words)
    arguments.mode = MODES["quick" if arguments.quick else "full"]
    arguments.only = _choose(parser, "--only", arguments.only, list(EXPERIMENTS))
    arguments.sets = _choose(parser, "--sets", arguments.sets or ",".join(arguments.mode.sets), list(PAPER_EPSILONS))
    if arguments.jobs < 1 or arguments.seed < 0:
        parser.error("--jobs must be at least 1, and --seed at least 0")
    if arguments.data is not None and not arguments.data.is_dir():
        parser.error(f"--data {arguments.data}: no such folder")
    if arguments.data is None and SHARED.is_dir():
        arguments.data = SHARED
    if arguments.document is None:
        arguments.document = arguments.output / DOCUMENT.name if arguments.quick else ROOT / DOCUMENT
    return arguments


def _choose(parser: argparse.ArgumentParser, option: str, words: str, known: list[str]) -> tuple[str, ...]:
    chosen = tuple(word.strip() for word in words.split(",") if word.strip())
    unknown = [word for word in chosen if word not in known]
    if unknown or not chosen:
        parser.error(f"{option}: {', '.join(unknown) or 'nothing'} is not among {', '.join(known)}")
    return chosen


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_missing(arguments: argparse.Namespace, data: dict[str, FoundData], store: Store) -> int:
    """Do the tasks that are not done, and those that their results call for; gives the number of those that failed."""
    request = Request(arguments.mode, arguments.seed, tuple(data))
    origin = describe_origin(arguments.jobs)
    spawn = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(arguments.jobs, spawn, prepare_worker, (os.getpid(),))
    failed: set[Task] = set()
    try:
        while True:
            planned = plan_tasks(arguments.only, request, store.results)
            missing = [task for task in planned if task not in store.results and task not in failed]
            if not missing:
                return len(failed)
            running = {pool.submit(run_task, task, data[task.dataset].sources): task for task in missing}
            failed |= set(_collect(running, store, origin, len(planned) - len(missing)))
    except BaseException:
        # Tasks under way may take minutes; the next run does them again.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _collect(
    running: dict[futures.Future[dict[str, Any]], Task], store: Store, origin: dict[str, str], n_done: int
) -> Iterator[Task]:
    """Keep what is finished, and give the tasks that could not be done."""
    n_tasks = n_done + len(running)
    with tqdm(total=n_tasks, initial=n_done, file=sys.stderr, disable=not sys.stderr.isatty(), unit="task") as bar:
        for done in futures.as_completed(running):
            task = running[done]
            n_done += 1
            bar.update()
            try:
                store.keep(task, done.result(), origin)
            except (DataError, ModelError, MemoryError) as error:
                bar.write(f"{task.title}: failed: {error or 'out of memory'}", file=sys.stderr)
                yield task
                continue
            if bar.disable:
                say(f"{n_done} of {n_tasks}: {task.title}")
            bar.set_postfix_str(task.title, refresh=False)


def write_document(arguments: argparse.Namespace, bundle: Bundle) -> None:
    """The document, its figures and the results that both are made of."""
    folder = arguments.document.parent / arguments.document.stem
    prepare_folder(str(folder))
    tasks = plan_tasks(list(EXPERIMENTS), bundle.request, bundle.results)
    write_output(str(folder / "results.json"), pack(bundle, tasks))
    for name, picture in draw_figures(bundle).items():
        write_output(str(folder / name), picture)
    write_output(str(arguments.document), render(bundle, folder.name))


def main(words: list[str] | None = None) -> int:
    arguments = parse_arguments(words)
    try:
        load_library("matplotlib", "plot", "the figures of the paper")
        load_library("sklearn", "sklearn", "the paper's comparison with random forests")
        check_output(str(prepare_folder(str(arguments.document.parent)) / arguments.document.name))
        # Results of sets that are not to be run now belong to the document all the same.
        names = dict.fromkeys((*arguments.mode.sets, *arguments.sets, *list_other_sets(arguments.output)))
        data = find_all_data(list(names), arguments.data, arguments.offline, say)
        store = Store(arguments.output, {name: found.digest for name, found in data.items()}, say)
        chosen = {name: data[name] for name in arguments.sets if name in data}
        try:
            n_failed = run_missing(arguments, chosen, store)
            status = 1 if n_failed else 0
        except KeyboardInterrupt:
            status = 130
            say("interrupted: what is finished is kept, the same command resumes")
        except BrokenProcessPool:
            status = 1
            say("Error: a worker was killed, perhaps because memory ran out; the same command resumes where it ended")
        request = Request(arguments.mode, arguments.seed, tuple(names))
        skipped = tuple(name for name in names if name not in data)
        write_document(arguments, Bundle(request, store.results, store.origins, skipped))
        say(f"{arguments.document}: written")
    except MetasilvaeError as error:
        say(f"Error: {error}")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
