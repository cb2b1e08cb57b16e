"""Every command in the documents is run, or stands in a table with the reason why it is not.

`test_sessions.py` runs the blocks marked ``console``, `test_api.py` those of ``docs/api.md``. Here are the other
blocks, the examples that close the help of each command, and whole commands in running text. The commands of a
document, or of a help, run in the order in which they stand, in a folder that holds the files which they presuppose and
no others.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.archives import COLUMNS, as_idx, as_zip
from support.command import run, write
from support.documented import (
    BLOCK,
    DOCUMENTS,
    LOOKS_LIKE_A_COMMAND,
    REFERENCE,
    ROOT,
    find_blocks,
    list_examples,
    list_shown,
    list_whole,
    read_document,
)
from support.exemptions import find_exemption
from support.placeholders import LIBRARIES, is_missing, make_placeholders, run_line
from support.remote_tasks import Cluster
from support.sessions import DOCUMENTS as SESSIONS
from support.sessions import make_environment
from support.slurm import SBATCH, SETTINGS

from metasilvae.datasets import remote
from metasilvae.formats.datasets import read_dataset

# What the commands of a document, or of a help, take for granted.
PRESUPPOSED = {
    "README.md": ["model.json", "test.csv", "Makefile"],
    "docs/import.md": ["model.json", "dump.txt", "test.csv"],
    "docs/cluster.md": ["data.csv", "train.csv", "test.csv", "forest.silva", "scheduler.json", "scripts"],
    "metasilvae train": ["data.csv", "test.csv"],
    "metasilvae pareto": ["trees", "test.csv"],
    "metasilvae verify": ["model.silva", "test.csv"],
    "metasilvae merge": ["part-1.jsonl", "part-2.jsonl", "radii-1.jsonl", "radii-2.jsonl"],
    "metasilvae explain": ["model.silva", "train.csv", "test.csv"],
    "metasilvae prove": ["model.silva", "train.csv"],
    "metasilvae evaluate": ["a.silva", "b.silva", "test.csv"],
    "metasilvae report": ["model.silva", "train.csv", "test.csv"],
    "metasilvae plot": ["model.silva", "train.csv"],
    "metasilvae plot convergence": ["training.jsonl", "default.jsonl", "paper.jsonl"],
    "metasilvae plot curve": ["cart.silva", "ours.silva"],
    "metasilvae plot pareto": ["trees"],
    "metasilvae plot regions": ["cart.silva", "ours.silva", "wine.silva"],
    "metasilvae plot tree": ["model.silva", "forest.silva", "test.csv"],
    "metasilvae plot variance": ["seeds.csv", "wine.csv", "iris.csv"],
    "metasilvae plot objective-weights": ["weight-0.csv", "weight-1.csv"],
    "metasilvae predict": ["model.silva", "test.csv", "values.csv"],
    "metasilvae info": ["model.silva", "forest.silva", "train.csv"],
    "metasilvae similarity": ["a.silva", "b.silva", "test.csv"],
    "metasilvae diff": ["old.silva", "new.silva", "train.csv", "test.csv"],
    "metasilvae simplify": ["model.silva", "train.csv"],
    "metasilvae assemble": ["tree-000.silva", "tree-001.silva"],
    "metasilvae disassemble": ["forest.silva"],
    "metasilvae import": ["model.json", "forest.joblib", "dump.txt", "test.csv"],
    "metasilvae export": ["model.silva", "forest.silva", "train.csv"],
    "metasilvae attack": ["train.csv"],
    "metasilvae attack check": ["attack.toml", "train.csv"],
    "metasilvae attack template": ["train.csv", "test.csv"],
    "metasilvae data": ["train.csv"],
    "metasilvae data check": ["train.csv"],
    "metasilvae data schema": ["train.csv"],
    "metasilvae data convert": ["train.csv", "test.csv"],
    "metasilvae data split": ["data.csv"],
}
# What, outside of quotes, only a shell gives a meaning to.
FOR_A_SHELL = re.compile(r"[|<>&;$]")
RUN_BY_A_SHELL = re.compile(r"metasilvae |eval |make help$|SBATCH_OPTIONS=\S+ MEMORY=\S+ scripts/slurm/forest\.sh ")
HOST = re.compile(r"tcp://host:8786", re.IGNORECASE)
HEAD_OF_A_FILE = "metasilvae checkpoint 4\n"
MIRROR = "https://example.org/data"
COMMANDS = [command for command in [*list_shown(), *list_examples(), *list_whole()] if not find_exemption(command.text)]
SOURCES = list(dict.fromkeys(command.source for command in COMMANDS))


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files that are presupposed anywhere."""
    folder = tmp_path_factory.mktemp("stock")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_placeholders(folder)
    for name in ("Makefile", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder that is the home of the data sets which the documents fetch, with small ones in their place."""
    folder = tmp_path / "collection"
    folder.mkdir()
    lines = [COLUMNS.split()]
    for name in ("diabetes", "wine", "adult", "credit", "mnist-1-5", "mnist"):
        for split in ("train", "test"):
            rows = read_dataset(f"builtin:circle/{split}")
            text = "".join(f"{rows.labels[y]},{a},{b}\n" for y, (a, b) in zip(rows.y, rows.X.tolist(), strict=True))
            files = {"rows": as_zip(text)}
            if name == "mnist":
                pixels = np.arange(24, dtype=np.uint8)
                images = {"images": pixels.reshape(6, 2, 2), "labels": pixels[:6]}
                files = {part: gzip.compress(as_idx(array), mtime=0) for part, array in images.items()}
            for part, content in files.items():
                path = f"{name}-{split}-{part}"
                (folder / path).write_bytes(content)
                checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
                cells = (name, split, part, 6, 2, 2, 0.1, "collection", path, len(content), checksum)
                lines.append([str(cell) for cell in cells])
    (folder / "downloads.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    address = f"{folder.as_uri()}/"
    monkeypatch.setattr(remote, "builtin_folder", lambda: folder)
    monkeypatch.setattr(remote, "HOMES", dict.fromkeys(remote.HOMES, (address,)))
    monkeypatch.setenv("METASILVAE_CACHE", str(tmp_path / "cache"))
    return address


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a shell that finds this metasilvae, and a SLURM and a Graphviz that are stand-ins."""
    programs = tmp_path / "programs"
    found = make_environment(programs) | {name: text for name, text in SETTINGS.items() if name != "MEMORY"}
    stand_ins = {"sbatch": SBATCH, "srun": '#!/bin/sh\nexec "$@"\n'}
    if shutil.which("dot") is None:
        stand_ins["dot"] = "#!/bin/sh\nexec grep digraph\n"
    for name, text in stand_ins.items():
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    return found | {"CALLS": str(tmp_path / "calls")}


@pytest.fixture
def folder(stock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def lay_out(source: str, stock: Path, folder: Path) -> None:
    """Put what the commands of a source presuppose into a folder."""
    for name in PRESUPPOSED.get(source, []):
        if (stock / name).is_dir() and not (stock / name).is_symlink():
            shutil.copytree(stock / name, folder / name)
        elif not is_missing(name) and name != "scheduler.json":
            shutil.copy(stock / name, folder / name, follow_symlinks=False)


def run_in_shell(line: str, environment: dict[str, str]) -> None:
    assert RUN_BY_A_SHELL.match(line), f"neither run nor exempt: {line}"
    words = ["bash", "-c", f"set -o pipefail; {line}"]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert found.returncode == 0, f"{line}\n{found.stderr}"


@pytest.mark.skipif(os.name == "nt", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("source", SOURCES)
def test_the_commands_run(
    source: str, stock: Path, folder: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    lay_out(source, stock, folder)
    lines = [command.text for command in COMMANDS if command.source == source]
    if any("data fetch" in line for line in lines):
        collection = request.getfixturevalue("collection")
        lines = [line.replace(MIRROR, collection) for line in lines]
    if any("--scheduler" in line for line in lines):
        cluster: Cluster = request.getfixturevalue("cluster")
        shutil.copy(cluster.file, folder / "scheduler.json")
        lines = [HOST.sub(cluster.address, line) for line in lines]
    for line in lines:
        if any(name in line and is_missing(name) for name in LIBRARIES):
            continue
        if FOR_A_SHELL.search(re.sub(r"'[^']*'", "", line)) or not line.startswith("metasilvae "):
            run_in_shell(line, environment)
        else:
            run_line(line)


def test_nothing_is_presupposed_that_is_not_named() -> None:
    for source, names in PRESUPPOSED.items():
        text = " ".join(command.text for command in COMMANDS if command.source == source)
        for name in names:
            pattern = re.sub(r"-\d+", r"-*", name)
            assert pattern in text or name == "Makefile", f"{source}: {name}"


def test_every_command_is_found() -> None:
    """A command in a block of another kind would go unseen."""
    assert len(list_shown()) >= 25
    assert len(list_examples()) >= 60
    assert len(re.findall(r"^ *metasilvae ", read_document(REFERENCE), re.MULTILINE)) == len(list_examples())
    for document in set(DOCUMENTS) - {REFERENCE}:
        assert not re.search(r"^ +```", read_document(document), re.MULTILINE), f"{document}: an indented block"
        for kind, content in BLOCK.findall(read_document(document).replace(HEAD_OF_A_FILE, "")):
            seen = kind in ("console", "sh", "yaml", "python")
            assert seen or not LOOKS_LIKE_A_COMMAND.search(content), f"{document}: {content}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_session_is_run(document: str) -> None:
    text = read_document(document)
    assert bool(find_blocks(text, "console")) == (document in SESSIONS)
    assert bool(find_blocks(text, "python")) == (document in ("README.md", "docs/api.md"))


def test_the_attack_file_of_its_guide(tmp_path: Path) -> None:
    [block] = find_blocks(read_document("docs/attack.md"), "toml")
    attack = write(tmp_path, "attack.toml", block)
    columns = ["income", "age", "height", "sex", "education", "zip_code", "red", "green", "blue", "weight"]
    lines = [
        f"label,{','.join(columns)},bill_length,island,job",
        "yes,30000,40,1.8,1,3,12345,0,1,0,70,40,Dream,clerk",
        "no,30000,40,1.8,1,3,12345,0,1,0,70,40,Biscoe,cashier",
        "no,30000,40,1.8,1,3,12345,0,1,0,70,40,Biscoe,nurse",
        "no,30000,40,1.8,1,3,12345,0,1,0,70,40,Biscoe,doctor",
    ]
    rows = write(tmp_path, "rows.csv", "\n".join(lines) + "\n")
    found = run("attack", "check", attack, rows).stdout
    assert "age          whole numbers, up only, by at most 2\n" in found
    assert "weight       up or down by at most 0.1\n" in found
    assert "bill_length  up or down by at most 3 % of the value\n" in found
    assert "job          may become each other: cashier, clerk; doctor, nurse\n" in found
    assert "exactly one of red, green, blue is 1" in found


def test_the_python_of_the_readme(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    train, test = (read_dataset(f"builtin:iris/{split}") for split in ("train", "test"))
    known: dict[str, Any] = {"X_train": train.X, "y_train": train.y, "X_test": test.X, "y_test": test.y}
    blocks = find_blocks(read_document("README.md"), "python")
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), known)
    assert known["tree"].robust_score(test.X, test.y) > 0.8


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="for a POSIX shell")
def test_the_demo_runs(tmp_path: Path, environment: dict[str, str]) -> None:
    """What `make demo` does when it has made an environment."""
    settings = environment | {"BIN": str(tmp_path / "programs"), "OUT": str(tmp_path / "demo")}
    line = ["sh", str(ROOT / "scripts" / "demo.sh")]
    found = subprocess.run(line, env=settings, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("$ metasilvae ") >= 10
    assert "report.html" in found.stdout.splitlines()
