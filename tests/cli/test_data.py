"""The commands of ``metasilvae data``."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from metasilvae.cli import main
from metasilvae.formats.datasets import read_dataset


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, input: bytes | None = None) -> Result:
    result = CliRunner().invoke(main, ["data", *arguments], input=input)
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("command", [(), ("check",), ("convert",), ("split",), ("list",)])
def test_help_ends_with_an_example(command: tuple[str, ...]) -> None:
    result = run(*command, "-h")
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "metasilvae data " in result.output


def test_check_shows_the_facts_on_one_screen() -> None:
    result = run("check", "builtin:wine/train")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) <= 24
    assert lines[0] == "builtin:wine/train"
    assert lines[1].startswith("rows      142, 0 of them duplicates")
    assert lines[2] == "features  13 with names, 0 constant"
    assert lines[4] == "classes   3: class_0 47, class_1 57, class_2 38"
    assert lines[-1] == "problems: none"


def test_check_shows_warnings() -> None:
    Path("data.csv").write_text("# 3 3\na b,1,2\nc,1,2\n")
    result = run("check", "data.csv")
    assert result.exit_code == 0
    assert "data.csv:1: the # line announces 3 rows, 2 follow; and 3 features" in result.output
    assert "2 constant features" in result.output
    assert "2 rows have equal values but different labels, for instance lines 2, 3" in result.output
    assert "'a b' contains a blank" in result.output
    assert "warning" not in result.stderr


def test_check_as_json() -> None:
    content = json.loads(run("check", "builtin:iris/test", "--format", "json").stdout)
    assert content["rows"] == 30
    assert content["classes"] == {"setosa": 10, "versicolor": 10, "virginica": 10}
    assert len(content["minimum"]) == 4
    assert content["problems"] == []
    Path("bad.csv").write_text("a,1\nb,x\n")
    result = run("check", "bad.csv", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["problems"][0].startswith("bad.csv:2: column 2: 'x' is not a number")


def test_check_of_standard_input_with_many_classes() -> None:
    result = run("check", "-", input="".join(f"label{row},{row}\n" for row in range(100)).encode())
    assert result.exit_code == 0
    assert result.output.startswith("<stdin>\n")
    assert "100: label0 1, " in result.output
    assert "and 88 more" in result.output
    assert "is the label in another column? Then use --label-column" in result.output


def test_convert_between_all_formats() -> None:
    original = read_dataset("builtin:breast-cancer/test")
    names = ["a.csv", "b.libsvm.gz", "c.bin.xz", "d.svm.bz2", "e.csv.gz", "f.binary"]
    source = "builtin:breast-cancer/test"
    for name in names:
        result = run("convert", source, name)
        assert result.exit_code == 0, result.output
        assert result.stderr == f"{name}: 114 rows x 30 features, 2 classes\n"
        dataset = read_dataset(name)
        assert dataset.X.tobytes() == original.X.tobytes()
        assert dataset.labels == original.labels
        assert np.array_equal(dataset.y, original.y)
        source = name
    assert gzip.decompress(Path("e.csv.gz").read_bytes()).startswith(b"# 114 30\n")


def test_convert_to_standard_output() -> None:
    result = run("convert", "-", "-", "--to", "libsvm", "--label-column", "last", input=b"1,0,a\n0,2,b\n")
    assert result.exit_code == 0
    assert result.stdout == "a 1:1\nb 2:2\n"


def test_scale_is_saved_and_applied() -> None:
    assert run("convert", "builtin:wine/train", "a.csv", "--scale", "minmax", "--save-scale", "s.json").exit_code == 0
    assert run("convert", "builtin:wine/test", "b.csv", "--apply-scale", "s.json").exit_code == 0
    train, test = read_dataset("builtin:wine/train"), read_dataset("builtin:wine/test")
    low, high = train.X.min(axis=0), train.X.max(axis=0)
    assert np.array_equal(read_dataset("a.csv").X, (train.X - low) / (high - low))
    assert np.array_equal(read_dataset("b.csv").X, (test.X - low) / (high - low))
    assert json.loads(Path("s.json").read_text())["feature_names"][0] == "alcohol"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "builtin:wine/train", "out.xyz"], "the suffix does not determine the format"),
        (["convert", "builtin:wine/train", "-"], "the suffix does not determine the format"),
        (["convert", "builtin:wine/train", "o.csv", "--save-scale", "s"], "--save-scale needs --scale minmax"),
        (["convert", "builtin:wine/train", "o.csv", "--scale", "minmax", "--apply-scale", "s"], "excludes --scale"),
        (["convert", "builtin:wine/train", "o.csv", "--scale", "zscore"], "'zscore' is not"),
        (
            ["convert", "builtin:wine/train", "o.csv", "--scale", "minmax", "--save-scale", "o.csv"],
            "two results would be",
        ),
        (["convert", "-", "o.csv", "--apply-scale", "-"], "standard input (-) can be used for one"),
        (["split", "builtin:wine/train", "--test", "1.5"], "1.5 is not between 0 and 1"),
        (
            ["split", "builtin:wine/train", "--train-output", "a.csv", "--test-output", "a.csv"],
            "two results would be",
        ),
        (["split", "builtin:wine/train", "--test-output", "a.xyz"], "the suffix does not determine the format"),
        (["check", "builtin:wine/train", "--label-column", "0"], "expected first, last, a column name"),
        (["check"], "Missing argument"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(Path().iterdir()) == []


def test_outputs_are_checked_before_work() -> None:
    result = run("convert", "builtin:wine/train", "missing/out.csv")
    assert result.exit_code == 1
    assert "does not exist; create it first" in result.stderr


def test_split() -> None:
    Path("folder").mkdir()
    Path("folder/data.txt").write_text("".join(f"{'ab'[row % 2]},{row}\n" for row in range(50)))
    result = run("split", "folder/data.txt", "--test", "0.2", "--seed", "1")
    assert result.exit_code == 0
    assert "folder/data-train.txt: 40 rows x 1 features, 2 classes" in result.stderr
    train, test = read_dataset("folder/data-train.txt"), read_dataset("folder/data-test.txt")
    assert sorted([*train.X[:, 0], *test.X[:, 0]]) == list(range(50))
    assert np.bincount(test.y).tolist() == [5, 5]
    first = Path("folder/data-test.txt").read_bytes()
    assert run("split", "folder/data.txt").exit_code == 0
    assert Path("folder/data-test.txt").read_bytes() == first
    run("split", "folder/data.txt", "--seed", "2")
    assert Path("folder/data-test.txt").read_bytes() != first


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["builtin:iris/train"], {"iris-train-train.csv", "iris-train-test.csv"}),
        (["builtin:iris/train", "--to", "libsvm"], {"iris-train-train.libsvm", "iris-train-test.libsvm"}),
        (["builtin:iris/train", "--to", "binary", "--test-output", "t"], {"iris-train-train.bin", "t"}),
        (["-"], {"data-train.csv", "data-test.csv"}),
    ],
)
def test_names_of_the_parts(arguments: list[str], names: set[str]) -> None:
    result = run("split", *arguments, input=b"a,1\na,2\na,3\nb,4\nb,5\nb,6\n")
    assert result.exit_code == 0, result.output
    assert {path.name for path in Path().iterdir()} == names


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        "split builtin:iris/test --train-output kept.csv --test-output /dev/full --to csv",
        "convert builtin:iris/test /dev/full --to csv --scale minmax --save-scale kept.csv",
    ],
)
def test_of_two_outputs_both_are_written_or_none(arguments: str) -> None:
    Path("kept.csv").write_text("as it was")
    result = run(*arguments.split())
    assert result.exit_code == 1
    assert result.stderr == "error: /dev/full: cannot be written: No space left on device\n"
    assert Path("kept.csv").read_text() == "as it was"
    assert [path.name for path in Path().iterdir()] == ["kept.csv"]


def test_list() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert "builtin:circle/train" in result.output
    records = json.loads(run("list", "--format", "json").stdout)
    assert len(records) == 12
    assert {"data set": "builtin:wine/test", "rows": 36, "features": 13, "classes": 3, "epsilon": 0.1} in records


def test_inputs_are_never_overwritten() -> None:
    Path("rows.csv").write_text("a,1\nb,2\n")
    assert run("convert", "rows.csv", "scaled.csv", "--scale", "minmax", "--save-scale", "scale.json").exit_code == 0
    scale = Path("scale.json").read_bytes()
    for arguments in (
        ("convert", "rows.csv", "rows.csv"),
        ("convert", "rows.csv", "scale.json", "--apply-scale", "scale.json", "--to", "csv"),
        ("split", "rows.csv", "--test", "0.5", "--test-output", "rows.csv"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "is read by this command" in result.stderr
    assert Path("rows.csv").read_text() == "a,1\nb,2\n"
    assert Path("scale.json").read_bytes() == scale


def test_names_that_speak_against_the_columns_are_told() -> None:
    Path("last.csv").write_text("x,y,label\n5.1,3.5,0\n4.9,3.0,1\n")
    result = run("check", "last.csv")
    assert "--label-column label reads that one" in result.output
    assert "reads that one" not in run("check", "last.csv", "--label-column", "label").output
    Path("numbers.csv").write_text("label,0,1\na,1,3\nb,4,4\n")
    assert "--header reads it as names" in run("check", "numbers.csv").output
