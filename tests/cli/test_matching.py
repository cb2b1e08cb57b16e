"""Data are matched to models by the names of columns; the description of a model survives every command."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from support.command import FOREST, ROWS, TREE, run, write

from metasilvae.dataset import Dataset
from metasilvae.formats.datasets import read_dataset
from metasilvae.formats.silva_models import read_model, same_model

IRIS = ("builtin:iris/train", "builtin:iris/test")
NAMES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
TRAINING = ("--epsilon", "0.2", "--preset", "fast")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with and without names, and the same rows in files with different columns."""
    place = tmp_path_factory.mktemp("matching")
    run("train", IRIS[0], place / "tree.silva", *TRAINING)
    run("train", IRIS[0], place / "forest.silva", *TRAINING, "--trees", "3")
    run("train", IRIS[0], place / "plain.silva", *TRAINING, "--plain")
    dataset = read_dataset(IRIS[1])
    columns = {
        "test": [0, 1, 2, 3],
        "reversed": [3, 2, 1, 0],
        "extra": [1, -1, 3, 0, 2],
        "missing": [0, 1, 2],
    }
    for name, order in columns.items():
        write_csv(place / f"{name}.csv", dataset, order)
    (place / "nameless.csv").write_text((place / "test.csv").read_text().partition("\n")[2])
    return place


def write_csv(path: Path, dataset: Dataset, order: list[int]) -> None:
    """Rows with the given features; -1 is a column that no model knows."""
    lines = [["class", *("id" if f < 0 else NAMES[f] for f in order)]]
    for row, (label, values) in enumerate(zip(dataset.y, dataset.X.tolist(), strict=True)):
        lines.append([dataset.labels[label], *(row if f < 0 else values[f] for f in order)])
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def accuracy(model: Path, data: Path) -> float:
    return json.loads(run("evaluate", model, data, "--format", "json").stdout)["evaluations"][0]["accuracy"]


@pytest.mark.parametrize("model", ["tree", "forest"])
def test_reversed_columns(folder: Path, model: str) -> None:
    """A model without names takes the columns as they stand, as silva does; one with names puts them in order."""
    usual = accuracy(folder / f"{model}.silva", folder / "test.csv")
    assert usual > 0.9
    result = run("evaluate", folder / f"{model}.silva", folder / "reversed.csv")
    assert result.stderr == ""
    assert accuracy(folder / f"{model}.silva", folder / "reversed.csv") == usual
    assert accuracy(folder / "plain.silva", folder / "test.csv") > 0.9
    assert accuracy(folder / "plain.silva", folder / "reversed.csv") < 0.5
    assert accuracy(folder / "tree.silva", folder / "nameless.csv") > 0.9


# Commands that read a model and data, as far as the words before the files.
COMMANDS = [
    ("verify", "{model}", "{data}", "--epsilon", "0.2", "--format", "csv"),
    ("verify", "{model}", "{data}", "--radius", "--format", "csv"),
    ("evaluate", "{model}", "{data}", "--epsilon", "0.2", "--confusion", "--format", "json"),
    ("evaluate", "{model}", "{data}", "--curve", "--format", "csv"),
    ("predict", "{model}", "{data}", "--format", "csv"),
    ("explain", "{model}", "{data}", "--epsilon", "0.2"),
    ("info", "{model}", "{data}"),
    ("export", "{model}", "--to", "text", "--data", "{data}"),
    ("export", "{model}", "--to", "silva", "--data", "{data}"),
    ("simplify", "{model}", "--domain", "{data}"),
    ("similarity", "{model}", "{plain}", "{data}"),
    ("similarity", "{model}", "{reordered}", "{data}"),
    ("diff", "{model}", "{reordered}", "{data}", "--exit-code"),
    ("diff", "{model}", "{plain}", "{data}", "--domain", "{data}"),
    ("verify", "{model}", "{data}", "--epsilon", "0.2", "--counterexamples", "-", "-o", "/dev/null"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:6]))
@pytest.mark.parametrize("change", ["reversed", "extra"])
def test_every_command_gives_the_same(words: tuple[str, ...], change: str, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "tree.silva", tmp_path / "tree.silva")
    # The same tree, trained on columns in another order.
    (tmp_path / "order").mkdir()
    dataset = read_dataset(IRIS[0])
    write_csv(tmp_path / "order" / "train.csv", dataset, [2, 0, 3, 1])
    run("train", tmp_path / "order" / "train.csv", tmp_path / "reordered.silva", *TRAINING)
    outputs = []
    for name in ("test", change):
        # Positions are those of the data where a model without names takes part.
        order = "test" if "{plain}" in words else name
        shutil.copy(folder / f"{order}.csv", tmp_path / "data.csv")
        files = {
            "model": tmp_path / "tree.silva",
            "data": tmp_path / "data.csv",
            "plain": folder / "plain.silva",
            "reordered": tmp_path / "reordered.silva",
        }
        result = run(*(word.format(**files) for word in words), code=None)
        assert result.exit_code in (0, 3)
        shown = [line for line in result.stdout.splitlines() if " s" not in line or "verified in" not in line]
        outputs.append((result.exit_code, shown))
        if name == "extra" and order == "extra":
            warning = f"{tmp_path / 'data.csv'}: 1 column is ignored, which {tmp_path / 'tree.silva'}"
            assert result.stderr.count("is ignored") == 1
            assert f"warning: {warning}" in result.stderr
            assert "does not have: 'id'" in result.stderr
    assert outputs[0] == outputs[1]


def test_a_model_without_names_needs_the_data_as_they_stand(folder: Path) -> None:
    """Beside one with names, which is put into the order of the data."""
    for name in ("reversed", "extra"):
        alone = [accuracy(folder / model, folder / f"{name}.csv") for model in ("tree.silva",)]
        words = ("evaluate", folder / "tree.silva", folder / "plain.silva", folder / f"{name}.csv", "--format", "json")
        if name == "extra":
            assert "has 5 features" in run(*words, code=1).stderr
            continue
        both = [each["accuracy"] for each in json.loads(run(*words).stdout)["evaluations"]]
        assert both == [*alone, accuracy(folder / "plain.silva", folder / "reversed.csv")]


def test_missing_columns_are_named(folder: Path, tmp_path: Path) -> None:
    result = run("verify", folder / "tree.silva", folder / "missing.csv", "--epsilon", "0.1", code=1)
    assert result.stdout == ""
    assert result.stderr == (
        f"error: {folder / 'missing.csv'}: lacks 1 of the 4 columns of {folder / 'tree.silva'}: 'petal_width'; "
        "add them, or correct the header\n"
    )
    other = write(tmp_path, "other.csv", "class,a,b,c,d\nsetosa,1,2,3,4\n")
    assert "its columns are 'a', 'b', 'c', 'd'" in run("predict", folder / "tree.silva", other, code=1).stderr
    twice = write(tmp_path, "twice.csv", f"class,{','.join(NAMES)},petal_width\nsetosa,1,2,3,4,5\n")
    assert "2 columns are called 'petal_width'" in run("predict", folder / "tree.silva", twice, code=1).stderr
    label = write(tmp_path, "label.csv", f"{','.join(NAMES)},class\n1,2,3,4,5\n")
    assert "'sepal_length' was read as the label" in run("predict", folder / "tree.silva", label, code=1).stderr


def test_names_of_the_model_are_used_without_data(folder: Path, tmp_path: Path) -> None:
    model = folder / "tree.silva"
    assert "petal_length" in run("export", model, "--to", "text").stdout
    assert json.loads(run("export", model, "--to", "json").stdout)["feature_names"] == list(NAMES)
    assert "petal_length" in run("explain", model, folder / "nameless.csv", "--epsilon", "0.2").stdout
    smaller = write(tmp_path, "leaf.silva", "classifier-decision-tree 4 3\nsetosa versicolor virginica\nLEAF 1 0 0\n")
    assert "petal_length" in run("diff", model, smaller).stdout


def test_info_shows_the_description(folder: Path) -> None:
    text = run("info", folder / "forest.silva").stdout
    for line in (
        "Voting: max",
        "Label column: label",
        "Trained with:",
        "  seed: 0",
        "perturbation: description l_inf 0.2",
    ):
        assert line in text
    document = json.loads(run("info", folder / "forest.silva", "--format", "json").stdout)
    assert document["feature_names"] == list(NAMES)
    assert (document["voting"], document["label_name"]) == ("max", "label")
    assert document["trained"]["options"]["trees"] == 3
    assert json.loads(run("info", folder / "plain.silva", "--format", "json").stdout)["trained"] is None


# Perturbations that belong to columns


def test_boxes_from_a_file_belong_to_the_columns_of_the_data_file(folder: Path, tmp_path: Path) -> None:
    verdicts = []
    for name in ("test", "reversed", "extra"):
        values = read_dataset(str(folder / f"{name}.csv")).X
        lines = (" ".join(f"[{x - 0.2 - f / 10!r};{x + 0.2!r}]" for f, x in enumerate(row)) for row in values.tolist())
        if name != "test":  # The same box for the same column.
            order = {"reversed": [3, 2, 1, 0], "extra": [1, 0, 3, 0, 2]}[name]
            lines = (
                " ".join(f"[{x - 0.2 - f / 10!r};{x + 0.2!r}]" for f, x in zip(order, row, strict=True))
                for row in values.tolist()
            )
        boxes = write(tmp_path, "boxes.txt", "\n".join(lines))
        words = ("--perturbation", "from-file", boxes, "--format", "csv")
        verdicts.append(run("verify", folder / "tree.silva", folder / f"{name}.csv", *words).stdout)
    assert "FRAGILE" in verdicts[0]
    assert verdicts[0] == verdicts[1] == verdicts[2]


def test_attacks_weights_and_tiers_see_the_order_of_the_model(folder: Path, tmp_path: Path) -> None:
    named = write(tmp_path, "named.toml", "[default]\nradius = 0\n[columns.petal_length]\nradius = 0.6\n")
    numbered = write(tmp_path, "numbered.toml", '[default]\nradius = 0\n[columns."x[2]"]\nradius = 0.6\n')
    weights = write(tmp_path, "weights.txt", "0 0 1 0\n")
    unused = write(tmp_path, "unused.toml", Path(named).read_text() + "[columns.id]\nradius = 3\n")
    found = {
        run("verify", folder / "tree.silva", folder / f"{name}.csv", *words, "--format", "csv").stdout
        for name in ("test", "reversed", "extra")
        for words in (
            ("--attack", named),
            ("--attack", numbered),
            ("--epsilon", "0.6", "--feature-weights", weights),
            *([("--attack", unused)] if name == "extra" else []),
        )
    }
    assert len(found) == 1
    assert "FRAGILE" in found.pop()
    # With several models, too.
    tables = {
        run(
            "evaluate", folder / "tree.silva", folder / "forest.silva", folder / f"{name}.csv", "--attack", attack
        ).stdout
        for name in ("test", "reversed", "extra")
        for attack in (named,)
    }
    assert len(tables) == 1


def test_one_hot_groups_follow_their_columns(tmp_path: Path) -> None:
    model = write(
        tmp_path, "m.silva",
        "classifier-decision-tree 3 2\na b\nSPLIT 0 0.5\nSPLIT 2 0.5\nLEAF 1 0\nLEAF 0 1\nLEAF 1 0\n"
        '# metasilvae {"features": ["u", "v", "w"]}\n',
    )  # fmt: skip
    one = write(tmp_path, "one.csv", "label,u,v,w\na,1,0,0.25\na,0,1,0.25\n")
    other = write(tmp_path, "other.csv", "label,w,v,u\na,0.25,0,1\na,0.25,1,0\n")
    attack = write(
        tmp_path, "a.toml", '[default]\nradius = 0\n[columns.w]\nradius = 0.5\n[[one-hot]]\ncolumns = ["u", "v"]\n'
    )
    for words in (("--epsilon", "1", "--tiers", "3 1 1 0"), ("--attack", attack)):
        found = [run("verify", model, data, *words, "--format", "csv").stdout for data in (one, other)]
        assert found[0] == found[1]
        assert "FRAGILE" in found[0]


# Voting


def test_the_voting_of_the_model_counts(tmp_path: Path) -> None:
    # Two trees vote weakly for a, one strongly for b.
    trees = "".join(f"classifier-decision-tree 1 2\na b\nLEAF {counts}\n" for counts in ("3 2", "3 2", "0 9"))
    plain = write(tmp_path, "plain.silva", f"classifier-forest 3\n{trees}")
    data = write(tmp_path, "data.csv", "a,1\n")
    average = tmp_path / "average.silva"
    run("export", plain, "--to", "silva", "--voting", "average", "-o", average)
    assert run("predict", plain, data).stdout == "a\n"
    assert run("predict", average, data).stdout == "b\n"
    assert run("predict", average, data, "--voting", "average").stderr == ""
    overridden = run("predict", average, data, "--voting", "max")
    assert overridden.stdout == "a\n"
    assert (
        overridden.stderr
        == f"warning: {average}: its trees vote by average; --voting max asks for another prediction\n"
    )
    # Reports show it.
    verify = ("verify", average, data, "--epsilon", "1")
    assert "(forest of 3 trees, 3 leaves, depth 0, voting average)" in run(*verify, "--format", "text").stdout
    assert json.loads(run(*verify, "--format", "json").stdout)["voting"] == "average"
    (row,) = csv.DictReader(io.StringIO(run("evaluate", average, data, "--format", "csv").stdout))
    assert row["voting"] == "average"
    curve = json.loads(run("evaluate", average, data, "--curve", "--format", "json").stdout)["curves"][0]
    assert curve["voting"] == "average"
    assert json.loads(run("similarity", average, plain, data, "--format", "json").stdout)["votings"] == [
        "average",
        "max",
    ]
    different = run("diff", average, plain, "--exit-code", code=3).stdout
    assert "voting average" in different
    assert "voting max" in different
    assert "Voting: average" in run("info", average).stdout
    run("report", average, data, "--epsilon", "1", "-o", tmp_path / "page.html")
    assert ">average<" in (tmp_path / "page.html").read_text()


# Survival


def test_the_description_survives(folder: Path, tmp_path: Path) -> None:
    forest = read_model(str(folder / "forest.silva"))
    run("disassemble", folder / "forest.silva", tmp_path / "trees")
    trees = sorted((tmp_path / "trees").iterdir())
    assert all(read_model(str(tree)).description == forest.description for tree in trees)
    run("assemble", tmp_path / "again.silva", *trees)
    assert (tmp_path / "again.silva").read_bytes() == (folder / "forest.silva").read_bytes()
    for name in ("tree", "forest"):
        run("simplify", folder / f"{name}.silva", "-o", tmp_path / "simple.silva")
        assert (
            read_model(str(tmp_path / "simple.silva")).description
            == read_model(str(folder / f"{name}.silva")).description
        )
    run("export", folder / "forest.silva", "--to", "silva", "-o", tmp_path / "same.silva")
    assert (tmp_path / "same.silva").read_bytes() == (folder / "forest.silva").read_bytes()


def test_through_a_pipe(folder: Path) -> None:
    text = run("train", IRIS[0], "-", *TRAINING).stdout
    assert text == (folder / "tree.silva").read_text()
    usual, reversed_ = (
        run("verify", "-", folder / f"{name}.csv", "--epsilon", "0.2", "--format", "csv", stdin=text).stdout
        for name in ("test", "reversed")
    )
    assert usual == reversed_
    assert run("simplify", "-", stdin=text).stdout.splitlines()[-1] == text.splitlines()[-1]


def test_an_archive_has_descriptions(tmp_path: Path) -> None:
    words = ("--epsilon", "0.2", "--max-iteration", "2", "--no-tune", "--pareto")
    run("train", IRIS[0], tmp_path / "tree.silva", *words, tmp_path / "trees")
    description = read_model(str(tmp_path / "tree.silva")).description
    assert description.feature_names == NAMES
    for path in (tmp_path / "trees").glob("*.silva"):
        assert read_model(str(path)).description == description
    run("pareto", tmp_path / "trees", "--by", "accuracy", "-o", tmp_path / "picked.silva")
    assert read_model(str(tmp_path / "picked.silva")).description == description
    run("train", IRIS[0], tmp_path / "plain.silva", *words, tmp_path / "plain", "--plain")
    assert all("metasilvae" not in path.read_text() for path in (tmp_path / "plain").glob("*.silva"))


def test_shards_of_reordered_data_merge(folder: Path, tmp_path: Path) -> None:
    parts = []
    for number, name in ((1, "test"), (2, "reversed")):
        shutil.copy(folder / f"{name}.csv", tmp_path / "data.csv")
        parts.append(tmp_path / f"{number}.jsonl")
        words = ("--epsilon", "0.2", "--shard", f"{number}/2", "-o", parts[-1])
        run("verify", folder / "forest.silva", tmp_path / "data.csv", *words)
    whole = run("verify", folder / "forest.silva", folder / "test.csv", "--epsilon", "0.2", "--format", "csv").stdout
    assert run("merge", *parts, "--format", "csv").stdout == whole


def test_plain_leaves_the_line_out(folder: Path, tmp_path: Path) -> None:
    model, output = folder / "forest.silva", tmp_path / "plain.silva"
    run("disassemble", model, tmp_path / "trees", "--plain")
    run("disassemble", model, tmp_path / "named")
    for words in (
        ("train", IRIS[0], output, *TRAINING, "--plain"),
        ("simplify", model, "-o", output, "--plain"),
        ("assemble", output, *sorted((tmp_path / "named").iterdir()), "--plain", "--force"),
        ("export", model, "--to", "silva", "--plain", "-o", output),
    ):
        output.unlink(missing_ok=True)
        run(*words)
        assert "#" not in output.read_text()
    assert same_model(read_model(str(output)), read_model(str(model)))
    assert all("#" not in path.read_text() for path in (tmp_path / "trees").iterdir())
    assert "leave it out" in run("export", model, "--to", "json", "--plain", code=2).stderr
    assert "leave out --plain" in run("export", model, "--to", "silva", "--plain", "--voting", "max", code=2).stderr


HOLED = "a,b,kind\n1,2,x\n2,,y\n" + "1,2,x\n2,3,y\n" * 8
LIKE_HOLED = ("--label-column", "last", "--epsilon", "0.1", "--preset", "fast")


def test_plain_files_hold_no_directions_of_missing_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("holed.csv").write_text(HOLED)
    run("train", "holed.csv", "forest.silva", *LIKE_HOLED, "--trees", "2")
    told = "forest.silva: has directions of missing values, which a plain file leaves out; it refuses such rows"
    for words in (
        ("simplify", "forest.silva", "-o", "plain.silva", "--plain"),
        ("disassemble", "forest.silva", "trees", "--plain"),
        ("export", "forest.silva", "--to", "silva", "--plain", "-o", "plain.silva"),
    ):
        assert run(*words).stderr == f"warning: {told}\n"
    run("assemble", "plain.silva", "forest.silva", "forest.silva", "--plain", "--force")
    assert all("#" not in path.read_text() for path in (Path("plain.silva"), *Path("trees").iterdir()))


@pytest.mark.parametrize("kind", [[], ["--trees", "2"], ["--boost", "2"], ["--seeds", "1..2"]])
def test_missing_values_that_a_model_could_not_take_are_refused_before_the_training(
    kind: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("holed.csv").write_text(HOLED)
    Path("whole.csv").write_text(HOLED.replace("2,,y", "2,3,y"))
    monkeypatch.setattr("metasilvae.training.runs.make_trainer", lambda *_: pytest.fail("trains"))
    words = ["train", "holed.csv", "m.silva", *LIKE_HOLED, *kind]
    for more in (["--plain"], ["--plain", "--test", "whole.csv"]):
        found = run(*words, *more, code=2)
        assert found.stderr == (
            "error: holed.csv: row 1: b is missing, and a file without its last line does not hold the directions of "
            "missing values; leave out --plain, or fill the missing values in. See metasilvae train -h\n"
        )
    found = run("train", "whole.csv", "m.silva", *LIKE_HOLED, *kind, "--test", "holed.csv", code=1)
    assert found.stderr == (
        "error: holed.csv: row 1: b is missing, and no value of whole.csv is, so that the model cannot learn where to "
        "send missing values; fill them in, or leave these rows out\n"
    )
    assert not Path("m.silva").exists()


def test_names_can_be_added_to_a_model(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "named.silva"
    run("export", folder / "plain.silva", "--to", "silva", "--data", folder / "test.csv", "-o", output)
    assert read_model(str(output)).description.feature_names == NAMES
    assert accuracy(output, folder / "reversed.csv") > 0.9


def test_trees_with_other_columns_cannot_be_joined(folder: Path, tmp_path: Path) -> None:
    dataset = read_dataset(IRIS[0])
    write_csv(tmp_path / "order.csv", dataset, [2, 0, 3, 1])
    run("train", tmp_path / "order.csv", tmp_path / "order.silva", *TRAINING)
    joined = tmp_path / "joined.silva"
    result = run("assemble", joined, folder / "tree.silva", tmp_path / "order.silva")
    assert result.stderr.startswith(f"warning: {joined}: the trees differ in their label name")
    both = read_model(str(joined))
    assert both.description.feature_names == NAMES
    assert (both.tree(0).tested_features == both.tree(1).tested_features).all()
    result = run("assemble", joined, folder / "tree.silva", folder / "plain.silva", "--force")
    assert result.stderr == (
        f"warning: {joined}: the trees differ in their feature names and label name, which the forest does not have\n"
    )
    (tmp_path / "order.csv").write_text((tmp_path / "order.csv").read_text().replace("sepal_width", "other"))
    run("train", tmp_path / "order.csv", tmp_path / "other.silva", *TRAINING)
    refused = run("assemble", joined, folder / "tree.silva", tmp_path / "other.silva", "--force", code=1).stderr
    assert "its features are not those of" in refused
    assert "'sepal_width', 'other'" in refused
    run("assemble", joined, folder / "tree.silva", tmp_path / "other.silva", "--force", "--plain")


# Training


def test_test_rows_and_trees_to_start_from_are_matched(folder: Path, tmp_path: Path) -> None:
    shown = []
    for name in ("test", "reversed"):
        run(
            "train",
            IRIS[0],
            tmp_path / "t.silva",
            *TRAINING,
            "--test",
            folder / f"{name}.csv",
            "--table",
            tmp_path / "t.csv",
        )
        (row,) = csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text()))
        shown.append({key: value for key, value in row.items() if key.startswith("test_")})
    assert shown[0] == shown[1]
    dataset = read_dataset(IRIS[0])
    write_csv(tmp_path / "order.csv", dataset, [2, 0, 3, 1])
    idle = ("--max-iteration", "0", "--polish", "0", "--epsilon", "0.2")
    generator = ("--population-generator", "from-forest", folder / "tree.silva")
    run("train", tmp_path / "order.csv", tmp_path / "order.silva", *idle, *generator)
    assert "proved" in run("diff", folder / "tree.silva", tmp_path / "order.silva").stdout


def test_columns_with_equal_names_leave_the_model_without_names(tmp_path: Path) -> None:
    data = write(tmp_path, "twice.csv", "label,u,u\na,1,2\nb,2,1\na,1,3\nb,3,1\n")
    result = run("train", data, tmp_path / "t.silva", "--epsilon", "0.1", "--preset", "fast")
    assert "has the name 'u' for features 0 and 1; names must differ; the model has no names" in result.stderr
    assert read_model(str(tmp_path / "t.silva")).description.feature_names is None


def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """Whatever the data file is called, and for any number of threads."""
    for jobs, name in ((1, "a.csv"), (2, "b.csv")):
        (tmp_path / str(jobs)).mkdir()
        write_csv(tmp_path / str(jobs) / name, read_dataset(IRIS[0]), [0, 1, 2, 3])
        run("train", tmp_path / str(jobs) / name, tmp_path / f"{jobs}.silva", *TRAINING, "--trees", "3", "--jobs", jobs)
    assert (tmp_path / "1.silva").read_bytes() == (tmp_path / "2.silva").read_bytes()


def test_a_damaged_trailer_is_one_line(tmp_path: Path) -> None:
    model = write(tmp_path, "m.silva", TREE + '# metasilvae {"features": ["u"]}\n')
    data = write(tmp_path, "d.csv", ROWS)
    result = run("verify", model, data, "--epsilon", "0.1", code=1)
    assert result.stderr == f"error: {model}:9: the trailer has 1 feature names, the model has 2 features\n"
    later = write(tmp_path, "f.silva", FOREST + '# metasilvae {"requires": ["missing values"]}\n')
    assert "use a newer version of metasilvae" in run("info", later, code=1).stderr
