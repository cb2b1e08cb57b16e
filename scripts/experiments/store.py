"""Sources of the paper's data, and the storage of results: a file for each finished task."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.tasks import MODES, OTHER_SETS, Request, Results, Task
from metasilvae import __version__
from metasilvae.datasets.remote import choose_datasets, fetch_dataset, list_remote_datasets
from metasilvae.errors import DataError, MetasilvaeError
from metasilvae.io.storage import prepare_folder, read_source, write_output
from metasilvae.output.text.terminal import TransferBar

SPLITS = ("train", "test")


@dataclass(frozen=True)
class FoundData:
    """A set that is at hand: where its two parts are, and a hash of what is in them."""

    sources: dict[str, str]
    digest: str


def find_data(name: str, folder: Path | None, offline: bool) -> FoundData:
    """A set from the folder, else from the cache, else from its home; an error says why there is none."""
    sources = {split: str(folder / name / f"{split}.csv.gz") for split in SPLITS} if folder else {}
    if not folder or not all(Path(source).is_file() for source in sources.values()):
        sources = _fetch(name, folder, offline)
    digest = hashlib.sha256()
    for source in sources.values():
        digest.update(hashlib.sha256(read_source(source)).digest())
    return FoundData(sources, digest.hexdigest()[:16])


def find_all_data(
    names: Sequence[str], folder: Path | None, offline: bool, say: Callable[[str], None]
) -> dict[str, FoundData]:
    """The sets that are at hand; says why the others are not."""
    found = {}
    for name in names:
        try:
            found[name] = find_data(name, folder, offline)
        except MetasilvaeError as error:
            say(f"{name}: skipped: {error}")
    return found


def _fetch(name: str, folder: Path | None, offline: bool) -> dict[str, str]:
    if name not in {each.name for each in list_remote_datasets()}:
        place = f"not in {folder}, and " if folder else ""
        raise DataError(f"{place}there is no set of this name to fetch; give --data FOLDER with {name}/train.csv.gz")
    parts = choose_datasets((name,))
    for part in parts:
        bar = TransferBar(part.source)
        try:
            for received in fetch_dataset(part, offline=offline):
                bar.show(received)
        finally:
            bar.close()
    return {part.split: part.source for part in parts}


def list_other_sets(folder: Path) -> list[str]:
    """Sets that are run only if they are named, and were."""
    return [name for name in OTHER_SETS if any(folder.glob(f"*_{name}_*.json"))]


class Store:
    """A folder of results, read at the start; a file is there whole or not at all.

    Results count for one version and one state of the data; those of others stay where they are, unused.
    """

    def __init__(self, folder: Path, digests: dict[str, str], say: Callable[[str], None]) -> None:
        self._folder = prepare_folder(str(folder))
        self._digests = digests
        self.results: dict[Task, dict[str, Any]] = {}
        self.origins: dict[Task, dict[str, str]] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                self._take(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                say(f"{path}: left out, it is no result of this script ({error})")

    def _take(self, document: dict[str, Any]) -> None:
        task = Task.of(document["kind"], document["set"], **document["settings"])
        origin = document["origin"]
        if document["data"] == self._digests.get(task.dataset) and origin["version"] == __version__:
            self.results[task], self.origins[task] = document["result"], origin

    def keep(self, task: Task, result: dict[str, Any], origin: dict[str, str]) -> None:
        """Write a result; from then on the task is done."""
        document = {**describe_task(task), "data": self._digests[task.dataset], "result": result, "origin": origin}
        write_output(str(self._folder / self._name(task)), json.dumps(document, indent=1) + "\n")
        self._take(document)

    def _name(self, task: Task) -> str:
        identity = json.dumps([describe_task(task), self._digests[task.dataset], __version__], sort_keys=True)
        readable = re.sub(r"[^\w.=-]+", "_", task.title)
        return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.json"


def describe_task(task: Task) -> dict[str, Any]:
    return {"kind": task.kind, "set": task.dataset, "settings": dict(task.settings)}


@dataclass(frozen=True)
class Bundle:
    """All that the document is made of.

    Attributes
    ----------
    skipped : tuple of str
        Sets that were not at hand.
    """

    request: Request
    results: Results
    origins: dict[Task, dict[str, str]]
    skipped: tuple[str, ...] = ()


def pack(bundle: Bundle, tasks: Sequence[Task]) -> str:
    """Results of some tasks as one file, a line for each."""
    origins: list[dict[str, str]] = []
    lines = []
    for task in tasks:
        if task in bundle.results:
            origin = bundle.origins[task]
            if origin not in origins:
                origins.append(origin)
            document = {
                **describe_task(task), "origin": origins.index(origin), "result": bundle.results[task],
            }  # fmt: skip
            lines.append(json.dumps(document, separators=(",", ":")))
    head = {
        "mode": bundle.request.mode.name, "seed": bundle.request.seed, "sets": bundle.request.sets,
        "skipped": bundle.skipped, "origins": origins,
    }  # fmt: skip
    body = ",\n".join(lines)
    return f'{json.dumps(head, indent=1)[:-2]},\n "results": [\n{body}\n]}}\n'


def unpack(text: str) -> Bundle:
    """What `pack` has written."""
    document = json.loads(text)
    results, origins = {}, {}
    for each in document["results"]:
        task = Task.of(each["kind"], each["set"], **each["settings"])
        results[task], origins[task] = each["result"], document["origins"][each["origin"]]
    request = Request(MODES[document["mode"]], document["seed"], tuple(document["sets"]))
    return Bundle(request, results, origins, tuple(document["skipped"]))
