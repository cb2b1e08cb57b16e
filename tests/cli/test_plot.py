"""``metasilvae plot``: formats, the same bytes for the same input, and what is refused."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra plot")

import matplotlib
from support.command import FOREST, TREE, run, write
from support.pictures import texts_of_svg
from support.study_files import LOG, TABLE

ROOT = Path(__file__).parents[2]
IRIS = ("builtin:iris/tree.silva", "builtin:iris/test")
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Arguments for each picture."""
    folder = tmp_path_factory.mktemp("inputs")
    log, table = write(folder, "log.jsonl", LOG), write(folder, "table.csv", TABLE)
    archive = str(folder / "trees")
    run("train", "builtin:iris/train", folder / "m", "--epsilon", "0.1", "--preset", "fast", "--pareto", archive)
    return {
        "tree": [*IRIS, "--epsilon", "0.1"],
        "regions": [*IRIS, "--epsilon", "0.1"],
        "curve": [IRIS[0], *IRIS],
        "pareto": [archive],
        "convergence": [log],
        "objective-weights": [table],
        "variance": [table],
    }


NAMES = ["tree", "regions", "curve", "pareto", "convergence", "objective-weights", "variance"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_input_gives_the_same_bytes(name: str, commands: dict[str, list[str]], tmp_path: Path) -> None:
    """In all formats for models; what differs between formats is the same code for all pictures."""
    for ending, start in STARTS.items():
        if ending != "svg" and name not in ("tree", "regions"):
            continue
        pictures = []
        for number in range(2):
            path = tmp_path / f"{number}.{ending}"
            # What people set in their matplotlib has no say.
            with matplotlib.rc_context({"lines.linewidth": 1 + 9 * number, "svg.fonttype": "path"}):
                run("plot", name, *commands[name], "-o", path)
            pictures.append(path.read_bytes())
        assert pictures[0] == pictures[1]
        assert pictures[0].startswith(start)
        assert not re.search(rb"CreationDate|<dc:date>|tIME|Software", pictures[0])


def test_every_picture_is_tested(commands: dict[str, list[str]]) -> None:
    listed = re.findall(r"^  ([\w-]+)  ", run("plot", "-h").stdout.split("Commands:")[1], re.MULTILINE)
    assert sorted(listed) == sorted(NAMES) == sorted(commands)


def test_another_process_draws_the_same(commands: dict[str, list[str]], tmp_path: Path) -> None:
    path = tmp_path / "here.svg"
    run("plot", "regions", *commands["regions"], "-o", path)
    arguments = [
        sys.executable,
        "-m",
        "metasilvae",
        "plot",
        "regions",
        *commands["regions"],
        "-o",
        "-",
        "--format",
        "svg",
    ]
    environment = os.environ | {"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1", "TZ": "Asia/Tokyo"}
    done = subprocess.run(arguments, capture_output=True, env=environment, check=True)
    assert done.stdout == path.read_bytes()


def test_the_picture_goes_to_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    run("plot", "tree", IRIS[0], "-o", path)
    assert run("plot", "tree", IRIS[0], "-o", "-", "--format", "pdf").stdout_bytes == path.read_bytes()
    run("plot", "tree", IRIS[0], "-o", tmp_path / "x.pdf.gz")
    assert gzip.decompress((tmp_path / "x.pdf.gz").read_bytes()) == path.read_bytes()
    run("plot", "tree", IRIS[0], "-o", tmp_path / "picture", "--format", "pdf")
    assert (tmp_path / "picture").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_title(name: str, commands: dict[str, list[str]], tmp_path: Path) -> None:
    run("plot", name, *commands[name], "--title", "_My $title$", "-o", tmp_path / "x.svg")
    assert "_My $title$" in texts_of_svg(tmp_path / "x.svg")


@pytest.mark.parametrize("name", NAMES)
def test_pictures_without_matplotlib(
    name: str, commands: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("plot", name, *commands[name], "-o", tmp_path / "x.svg", code=1)
    assert "error: a plot needs matplotlib" in result.stderr
    assert "pip install 'metasilvae[plot]'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.gif"], "x.gif: a plot is a file that ends in .png, .svg, .pdf"),
        (["-o", "x"], "ends in .png, .svg, .pdf"),
        (["-o", "-"], "standard output has no suffix; add --format png|svg|pdf"),
        (["-o", "x.svg", "--format", "png"], "x.svg is to be a plot in the format png"),
        (["-o", "x.svg", "--format", "gif"], "'gif' is not one of 'png', 'svg', 'pdf'"),
        ([], "Missing option '--output'"),
        (["-o", "x.svg", "--tree", "1"], "has the trees 0 to 0"),
        (["-o", "x.svg", "--epsilon", "0.1"], "give DATA"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in run("plot", "tree", IRIS[0], *arguments, code=2).stderr
    assert not list(tmp_path.iterdir())


def test_a_tree_of_a_forest(tmp_path: Path) -> None:
    forest = write(tmp_path, "forest.silva", FOREST)
    assert "forest of 2 trees; choose one with --tree N" in run("plot", "tree", forest, "-o", "x.svg", code=2).stderr
    assert "has the trees 0 to 1" in run("plot", "tree", forest, "--tree", "2", "-o", "x.svg", code=2).stderr
    for number, test in ((0, True), (1, False)):
        run("plot", "tree", forest, "--tree", number, "-o", tmp_path / "x.svg")
        texts = texts_of_svg(tmp_path / "x.svg")
        assert ("x[0] \u2264 0.5" in texts) == test
        assert any(f"forest.silva, tree {number} of 2 (from 0): " in text for text in texts)


@pytest.mark.parametrize("name", ["tree", "regions"])
def test_what_is_refused_names_the_help_of_its_command(name: str, tmp_path: Path) -> None:
    for arguments in (["--epsilon", "x", "-o", tmp_path / "x.svg"], ["-o", "x.gif"], ["-o", "-"]):
        assert run("plot", name, *IRIS, *arguments, code=2).stderr.endswith(f" See metasilvae plot {name} -h\n")


def test_an_input_is_not_overwritten(tmp_path: Path) -> None:
    model = write(tmp_path, "tree.svg", TREE)
    assert "is read by this command" in run("plot", "tree", model, "-o", model, code=2).stderr
    assert Path(model).read_text() == TREE


def test_data_that_do_not_belong_to_the_model(tmp_path: Path) -> None:
    for name in ("tree", "regions", "curve"):
        result = run("plot", name, IRIS[0], "builtin:wine/test", "-o", tmp_path / "x.svg", code=1)
        assert "has 13 features, builtin:iris/tree.silva expects 4" in result.stderr


def test_characters_that_the_font_lacks(tmp_path: Path) -> None:
    model = write(tmp_path, "t.silva", "classifier-decision-tree 1 2 \u4e2d\u6587 b\nSPLIT 0 1\nLEAF 2 0\nLEAF 0 1\n")
    run("plot", "tree", model, "--title", "a\x01\udc80b", "-o", tmp_path / "x.svg")
    assert {"\u4e2d\u6587", "a\ufffd\ufffdb"} <= set(texts_of_svg(tmp_path / "x.svg"))
    result = run("plot", "tree", model, "-o", tmp_path / "x.png")
    assert result.stderr == "warning: a name has characters that the font of a png plot lacks; an svg plot shows them\n"


# The picture of the README


def test_the_picture_of_the_readme_is_small_and_names_what_it_shows() -> None:
    """`test_scripts.py` runs the script that draws it, on small data."""
    shown = ROOT / "docs" / "curves.svg"
    assert shown.stat().st_size < 60 * 1024
    expected = {"mnist-1-5", "metasilvae", "GROOT", "scikit-learn", "certified robust accuracy, test rows"}
    assert expected <= set(texts_of_svg(shown))


def test_a_curve_over_multiples_of_an_attack(tmp_path: Path) -> None:
    attack = tmp_path / "attack.toml"
    attack.write_text("[default]\nradius = 0.1\n")
    words = ["plot", "curve", IRIS[0], IRIS[1], "-o", "-", "--format", "svg"]
    over_epsilon, over_factor = run(*words).stdout, run(*words, "--attack", attack).stdout
    assert "epsilon" in over_epsilon
    assert "multiple of the attack" in over_factor
