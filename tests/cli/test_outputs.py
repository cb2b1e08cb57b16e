"""No command replaces a file that it reads, under whatever name: all commands, all their inputs, all their outputs."""

from __future__ import annotations

import ast
import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from support.boosted_models import xgboost_document
from support.command import FOREST, ROWS, TREE, run, write

import metasilvae
from metasilvae.cli import main, parameters
from metasilvae.training import runs

# Commands with a word for each input, and a word such as OUT.csv for each output: its suffix follows.
LINES = {
    "train": [
        "train ROWS OUT.silva --epsilon 0.1 --max-iteration 1 --test TESTROWS --log OUT.jsonl --table OUT.csv "
        "--checkpoint OUT.checkpoint",
        "train ROWS OUT.silva --attack ATTACK --max-iteration 1 --population-generator from-forest FOREST",
        "train ROWS OUT.silva --perturbation l_inf 0.1 --max-iteration 1 --schema SCHEMA",
        "train ROWS OUT.silva --epsilon 0.1 --max-iteration 1 --resume CHECKPOINT --checkpoint OUT.checkpoint",
    ],
    "pareto": [
        "pareto ARCHIVE --data ROWS --epsilon 0.1 --pick leaves>=1 -o OUT.silva --plot OUT.png",
        "pareto ARCHIVE --data ROWS --attack ATTACK --pick leaves>=1 -o OUT.silva",
    ],
    "verify": [
        "verify TREE ROWS --epsilon 0.1 -o OUT.txt --counterexamples OUT.csv",
        "verify TREE ROWS --attack ATTACK -o OUT.txt",
        "verify TREE ROWS --perturbation from-file BOXES -o OUT.txt",
        "verify TREE ROWS --radius --feature-weights WEIGHTS -o OUT.txt",
    ],
    "merge": ["merge SHARD -o OUT.txt"],
    "evaluate": [
        "evaluate TREE TREE2 ROWS --curve -o OUT.txt --plot OUT.png",
        "evaluate TREE ROWS --attack ATTACK -o OUT.txt",
    ],
    "explain": [
        "explain TREE ROWS --attack ATTACK -o OUT.txt",
        "explain TREE ROWS --perturbation from-file BOXES -o OUT.txt",
        "explain TREE ROWS --sufficient --domain TESTROWS -o OUT.txt",
    ],
    "prove": [
        "prove TREE --stable-on REGION.TOML -o OUT.txt",
        "prove TREE --stable-share --epsilon 0.001 --at-least 0.1 --domain ROWS -o OUT.txt",
    ],
    "report": [
        "report TREE ROWS TESTROWS --attack ATTACK -o OUT.html",
        "report TREE ROWS --perturbation from-file BOXES -o OUT.html",
    ],
    "plot convergence": ["plot convergence LOG -o OUT.png"],
    "plot curve": ["plot curve TREE ROWS -o OUT.png", "plot curve TREE ROWS --attack ATTACK -o OUT.png"],
    "plot objective-weights": ["plot objective-weights TABLE -o OUT.png"],
    "plot pareto": ["plot pareto ARCHIVE -o OUT.png"],
    "plot regions": ["plot regions TREE ROWS --attack ATTACK -o OUT.png"],
    "plot tree": ["plot tree TREE ROWS -o OUT.png"],
    "plot variance": ["plot variance TABLE -o OUT.png"],
    "predict": ["predict TREE ROWS -o OUT.txt"],
    "info": ["info TREE ROWS -o OUT.txt"],
    "similarity": ["similarity TREE TREE2 ROWS -o OUT.txt"],
    "diff": ["diff TREE TREE2 ROWS --domain TESTROWS -o OUT.txt"],
    "simplify": ["simplify TREE --domain ROWS -o OUT.silva"],
    "assemble": ["assemble --force OUT.silva TREE TREE2"],
    "disassemble": ["disassemble --force FOREST OUT.folder"],
    "import": ["import XGBOOST OUT.silva --check COLUMN"],
    "export": ["export TREE --to json --data ROWS -o OUT.json"],
    "data convert": [
        "data convert ROWS OUT.csv --scale minmax --save-scale OUT.json",
        "data convert ROWS OUT.csv --apply-scale SCALE",
        "data convert ROWS OUT.csv --schema SCHEMA",
    ],
    "data split": ["data split ROWS --train-output OUT.csv --test-output OUT.csv --test 0.4 --schema SCHEMA"],
    "data schema": ["data schema ROWS --schema SCHEMA -o OUT.toml"],
    "attack template": [
        "attack template ROWS TESTROWS -o OUT.toml",
        "attack template ROWS --schema SCHEMA -o OUT.toml",
    ],
}
WITHOUT_OUTPUT = {"data check", "data list", "data fetch", "attack check"}
# Parameters that are neither a file nor a folder, beside those whose values are numbers or choices.
NO_FILES = {
    "epsilon", "epsilons", "weights", "class_weight", "fitness", "allowed_features", "scheduler", "label_column",
    "requirements", "title", "wanted", "labels", "names", "mirror", "noise", "feature_names", "base_score",
    "target", "date", "insensitive", "monotone", "image_shifts",
}  # fmt: skip
BOXES = "\n".join("[0;1] [0;1]" for _ in range(7))
ATTACK = "default = { radius = 0.1 }\n"
REGION = "[columns]\n0 = { min = 0, max = 0.4 }\n1 = { min = 0, max = 0.2 }\n"
# Outputs whose suffix decides about their content, so that only names with this suffix come into question.
SUFFIXED = (".png", ".csv", ".json", ".html", ".jsonl")


def all_commands() -> Iterator[tuple[str, click.Command]]:
    def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield path, command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, f"{path} {name}".strip())

    return walk(main, "")


def test_all_commands_are_here() -> None:
    assert {name for name, _ in all_commands()} == set(LINES) | WITHOUT_OUTPUT


@pytest.mark.parametrize("name", LINES)
def test_all_files_of_a_command_are_here(name: str) -> None:
    """Each option that takes a path occurs in a line; arguments do in any case."""
    command = dict(all_commands())[name]
    text = f"{' '.join(LINES[name])} --output --pareto"
    for parameter in command.params:
        is_path = isinstance(parameter.type, click.types.StringParamType) or type(parameter.type).__name__ == "Phrase"
        if isinstance(parameter, click.Option) and is_path and parameter.name not in NO_FILES:
            assert any(option in text.split() for option in parameter.opts), (name, parameter.opts)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One valid file for each input, by its word."""
    folder = tmp_path_factory.mktemp("material")
    for word, text in {
        "TREE": TREE, "TREE2": TREE.replace("0.5", "0.4"), "FOREST": FOREST.replace("2 2 a b", "2 3 a bb c").replace(
            "LEAF 1 0", "LEAF 1 0 0").replace("LEAF 0 1", "LEAF 0 1 0").replace("LEAF 3 1", "LEAF 3 1 0"),
        "ROWS": ROWS, "TESTROWS": ROWS, "BOXES": BOXES, "ATTACK": ATTACK, "REGION.TOML": REGION, "WEIGHTS": "1,0.5\n",
        "XGBOOST": xgboost_document(), "COLUMN": "0,0.1\n1,0.9\n",
    }.items():  # fmt: skip
        write(folder, word, text)
    rows, tree = folder / "ROWS", folder / "TREE"
    training = ["train", rows, folder / "made.silva", "--epsilon", "0.1", "--max-iteration", "1"]
    made = folder / "made"
    run(*training, "--log", folder / "LOG", "--table", f"{made}.csv", "--pareto", folder / "ARCHIVE")
    run(*training, "--checkpoint", folder / "CHECKPOINT")
    (folder / "made.csv").rename(folder / "TABLE")
    run("verify", tree, rows, "--epsilon", "0.1", "--shard", "1/1", "--format", "jsonl", "-o", folder / "SHARD")
    run("data", "schema", rows, "-o", folder / "SCHEMA")
    run("data", "convert", rows, f"{made}.csv", "--scale", "minmax", "--save-scale", folder / "SCALE")
    return folder


@pytest.fixture
def folder(material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "xgboost", None)  # it would refuse the small file
    shutil.copytree(material, tmp_path, dirs_exist_ok=True)
    return tmp_path


def outputs_of(line: str) -> list[int]:
    return [place for place, word in enumerate(line.split()) if word.startswith("OUT.")]


def inputs_of(line: str) -> list[str]:
    return [word for word in line.split() if word.isupper() and not word.startswith("OUT")]


def words_with(line: str, attacked: int | None, name: str) -> list[str]:
    """The words of a command; one output has the given name, the others new ones."""
    words = line.split()
    for place in outputs_of(line):
        words[place] = name if place == attacked else f"new-{place}{words[place].removeprefix('OUT')}"
    return words


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


ALL_LINES = [line for lines in LINES.values() for line in lines]
ATTACKS = [
    (line, place, source)
    for line in ALL_LINES
    for place in outputs_of(line)
    for source in inputs_of(line)
    # A checkpoint may be resumed from and continued under one name; folders are below.
    if not line.split()[place].endswith(".folder")
    and not (line.split()[place].endswith(".checkpoint") and source == "CHECKPOINT")
]
SPELLINGS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda link, source: link.symlink_to(source),
    "link to a link": lambda link, source: (link.with_name("link").symlink_to(source), link.symlink_to("link")),
    "hard link": lambda link, source: os.link(source, link),
}


@pytest.mark.parametrize("line", ALL_LINES)
def test_the_lines_work(line: str, folder: Path) -> None:
    """Otherwise the tests below would be about other errors."""
    before = snapshot(folder)
    run(*words_with(line, None, ""))
    after = snapshot(folder)
    assert {name: after[name] for name in before} == before
    assert all(Path(words_with(line, None, "")[place]).exists() for place in outputs_of(line))


def attack(line: str, place: int, source: str, spelling: str, folder: Path, code: int) -> None:
    suffix = line.split()[place].removeprefix("OUT")
    target = folder / source
    if source == "ARCHIVE":
        target = folder / source / "index.json"
    if spelling in SPELLINGS:
        name = f"attacked{suffix}"
        SPELLINGS[spelling](folder / name, target)
    else:
        if suffix in SUFFIXED:
            return
        name = {"same": str(target), "relative": os.path.join("ARCHIVE", "..", target.relative_to(folder))}[spelling]
    before = snapshot(folder)
    result = run(*words_with(line, place, name), code=code)
    wanted = f"{name} is read by this command; write the result to another file"
    last = result.stderr.splitlines()[-1]
    assert wanted in last or (".checkpoint" in suffix and "exists already" in last), result.stderr
    after = snapshot(folder)
    assert {each: after[each] for each in before} == before


@pytest.mark.parametrize("spelling", ["same", "relative", *SPELLINGS])
@pytest.mark.parametrize(("line", "place", "source"), ATTACKS)
def test_an_input_is_refused_as_output(line: str, place: int, source: str, spelling: str, folder: Path) -> None:
    """Before any work is done."""
    attack(line, place, source, spelling, folder, 2)


@pytest.mark.parametrize("spelling", ["link", "hard link"])
@pytest.mark.parametrize(("line", "place", "source"), ATTACKS)
def test_a_command_that_forgot_to_check(
    line: str, place: int, source: str, spelling: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the end protects an input as well, if the one at the beginning is missing."""
    for module in (parameters, runs):
        monkeypatch.setattr(module, "check_outputs", lambda outputs, inputs: None)
    attack(line, place, source, spelling, folder, 1)


@pytest.mark.parametrize("early", [True, False])
def test_the_trees_of_a_forest_do_not_replace_it(early: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "trees").mkdir()
    (folder / "FOREST").rename(folder / "trees" / "tree-001.silva")
    if not early:
        monkeypatch.setattr(parameters, "check_outputs", lambda outputs, inputs: None)
    before = snapshot(folder)
    result = run("disassemble", "--force", "trees/tree-001.silva", "trees", code=2 if early else 1)
    assert "trees/tree-001.silva is read by this command; write the result to another file" in result.stderr
    assert "Traceback" not in result.stderr
    assert {name: content for name, content in snapshot(folder).items() if name in before} == before


def test_a_shipped_data_set_is_no_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = folder / "shipped" / "small" / "train.csv.gz"
    shipped.parent.mkdir(parents=True)
    shipped.write_bytes(gzip.compress(ROWS.encode()))
    monkeypatch.setattr("metasilvae.io.storage._BUILTIN_FOLDERS", (folder / "shipped",))
    result = run("data", "convert", "builtin:small/train", shipped, code=2)
    assert f"{shipped} is read by this command" in result.stderr
    assert gzip.decompress(shipped.read_bytes()) == ROWS.encode()


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_a_compressed_input(suffix: str, folder: Path) -> None:
    packed = f"rows.csv{suffix}"
    run("data", "convert", "ROWS", packed, "--to", "csv")
    before = (folder / packed).read_bytes()
    for words in (["predict", "TREE", packed, "-o", packed], ["data", "convert", packed, packed]):
        assert f"{packed} is read by this command" in run(*words, code=2).stderr
        assert (folder / packed).read_bytes() == before


def start(*words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "metasilvae", *words]
    return subprocess.run(program, capture_output=True, text=True, **settings)  # type: ignore[call-overload,no-any-return]


def test_standard_input_may_be_a_file(folder: Path) -> None:
    before = snapshot(folder)
    with open("TREE") as stream:
        found = start("info", "-", "-o", "TREE", stdin=stream)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("error: TREE is read by this command; write the result to another file")
    assert snapshot(folder) == before
    with open("TREE") as stream:
        assert start("info", "-", "-o", "facts.txt", stdin=stream).returncode == 0


def test_a_later_command_may_replace_what_an_earlier_one_read(folder: Path) -> None:
    """In one process, as in Python programs that call commands."""
    run("info", "ROWS", code=1)
    run("data", "convert", "TESTROWS", "ROWS", "--to", "csv")
    run("data", "convert", "ROWS", "TESTROWS", "--to", "csv")


# Modules that write files without the functions of io/storage.py, and why.
WRITING_THEMSELVES = {
    "io/storage.py": "the functions themselves",
    "io/locks.py": "locks, which hold nothing",
    "datasets/remote.py": "downloads to the cache",
    "interop/imports/catboost.py": "a temporary file for the library",
    "cli/commands.py": "/dev/null in place of a closed standard output",
}
WRITERS = {"replace", "rename", "unlink", "remove"}


def writes_files(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        owner = getattr(getattr(function, "value", None), "id", "")
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if owner == "os" and name in ("open", *WRITERS):
            return True
        if name in ("mkstemp", "NamedTemporaryFile", "write_bytes"):
            return True
        modes = [each.value for each in [*node.args, *(keyword.value for keyword in node.keywords)]
                 if isinstance(each, ast.Constant) and isinstance(each.value, str)]  # fmt: skip
        if name == "open" and any(set(mode) <= set("rwxab+t") and set(mode) & set("wxa+") for mode in modes):
            return True
    return False


def test_files_are_written_in_one_module() -> None:
    package = Path(metasilvae.__file__).parent
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if writes_files(path)}
    assert found == set(WRITING_THEMSELVES)
