"""``assemble`` and ``disassemble``."""

import os

import pytest
from click.testing import CliRunner
from support.oracles import make_model

from metasilvae.cli import main, models
from metasilvae.errors import OutputError
from metasilvae.formats.silva_models import format_model, read_model, write_model

TREES = [(0, 0.1, [4, 0], [1, 1]), [0, 3], (1, 1e22, [1, 0], (0, -0.0, [0, 2], [5, 0]))]
FOREST = make_model(TREES)


def run(*arguments: object, stdin: str | None = None):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def forest(tmp_path):
    path = tmp_path / "forest.silva"
    write_model(FOREST, str(path))
    return path


def test_apart_and_together_gives_the_same_bytes(forest, tmp_path):
    folder = tmp_path / "deep" / "trees"
    result = run("disassemble", forest, folder)
    assert result.exit_code == 0, result.output
    trees = sorted(folder.iterdir())
    assert [path.name for path in trees] == ["tree-000.silva", "tree-001.silva", "tree-002.silva"]
    assert [path.read_text() for path in trees] == [format_model(make_model([tree])) for tree in TREES]
    again = tmp_path / "again.silva"
    result = run("assemble", again, *trees)
    assert result.exit_code == 0, result.output
    assert again.read_bytes() == forest.read_bytes()


@pytest.mark.slow
def test_names_sort_in_the_order_of_the_trees(tmp_path):
    forest = tmp_path / "f.silva"
    write_model(make_model([[1 + i, 0] for i in range(1001)]), str(forest))
    assert run("disassemble", forest, tmp_path / "trees").exit_code == 0
    trees = sorted((tmp_path / "trees").iterdir())
    assert trees[0].name == "tree-0000.silva"
    assert run("assemble", tmp_path / "again.silva", *trees).exit_code == 0
    assert (tmp_path / "again.silva").read_bytes() == forest.read_bytes()


def test_forests_contribute_all_of_their_trees(forest, tmp_path):
    tree = tmp_path / "tree.silva"
    write_model(make_model([TREES[0]]), str(tree))
    output = tmp_path / "all.silva"
    assert run("assemble", output, forest, tree, forest).exit_code == 0
    assert format_model(read_model(str(output))) == format_model(make_model([*TREES, TREES[0], *TREES]))


def test_one_tree_makes_a_forest(tmp_path):
    result = run("assemble", "-", "-", stdin=format_model(make_model([TREES[0]])))
    assert result.exit_code == 0, result.output
    assert result.output == format_model(make_model([TREES[0]], is_forest=True))


def test_existing_files_are_kept_without_force(forest, tmp_path):
    before = forest.read_bytes()
    result = run("assemble", forest, forest)
    assert result.exit_code == 1
    assert "forest.silva: exists already" in result.stderr
    folder = tmp_path / "trees"
    folder.mkdir()
    for name in ("tree-001.silva", "tree-777.silva"):
        (folder / name).write_text("mine")
    result = run("disassemble", forest, folder)
    assert result.exit_code == 1
    assert "holds 2 trees already" in result.stderr
    assert (folder / "tree-001.silva").read_text() == "mine"
    assert len(os.listdir(folder)) == 2
    assert forest.read_bytes() == before


def test_force_overwrites_and_tells_of_older_trees(forest, tmp_path):
    folder = tmp_path / "trees"
    folder.mkdir()
    for name in ("tree-001.silva", "tree-777.silva"):
        (folder / name).write_text("mine")
    result = run("disassemble", forest, folder, "--force")
    assert result.exit_code == 0
    assert "1 older trees are there too (tree-777.silva)" in result.stderr
    assert read_model(str(folder / "tree-001.silva")).n_nodes == 1
    again = tmp_path / "again.silva"
    again.write_text("mine")
    result = run("assemble", again, forest, forest, "--force")
    assert result.exit_code == 0
    assert read_model(str(again)).n_trees == 6


def test_inputs_are_never_overwritten(forest, tmp_path):
    before = forest.read_bytes()
    result = run("assemble", forest, forest, forest, "--force")
    assert result.exit_code == 2
    assert "is read by this command" in result.stderr
    folder = tmp_path / "trees"
    folder.mkdir()
    (folder / "tree-000.silva").write_bytes(before)
    assert run("disassemble", folder / "tree-000.silva", folder, "--force").exit_code == 2
    assert forest.read_bytes() == (folder / "tree-000.silva").read_bytes() == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (make_model([[1, 0]], n_features=3), "number of features"),
        (make_model([[1, 0]], labels=("b", "a")), "labels"),
        ("classifier-decision-tree 2 2\na b\nLEAF 0 0\n", "all counts of this leaf are zero"),
    ],
)
def test_all_inputs_are_checked_before_writing(other, message, forest, tmp_path):
    bad, output = tmp_path / "bad.silva", tmp_path / "out.silva"
    bad.write_text(other if isinstance(other, str) else format_model(other))
    result = run("assemble", output, forest, bad)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {bad}:")
    assert message in result.stderr
    assert not output.exists()


def test_broken_requests(forest, tmp_path):
    assert run("assemble", tmp_path / "out.silva").exit_code == 2
    assert run("assemble", tmp_path / "out.silva", "-", "-").exit_code == 2
    assert run("assemble", tmp_path / "no" / "out.silva", forest).exit_code == 1
    result = run("disassemble", forest, forest)
    assert result.exit_code == 1
    assert "is a file, a folder was expected" in result.stderr
    result = run("disassemble", forest, forest / "trees")
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    result = run("disassemble", tmp_path / "none.silva", tmp_path / "trees")
    assert result.exit_code == 1
    assert not (tmp_path / "trees").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_full_disk_leaves_no_part_of_a_forest(is_there, forest, tmp_path, monkeypatch):
    folder = tmp_path / "trees"
    if is_there:
        assert run("disassemble", forest, folder).exit_code == 0
        (folder / "tree-000.silva").write_text("old")
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    written = []

    def fill_the_disk(model, path, *, plain=False):
        if len(written) == 2:
            raise OutputError(f"{path}: cannot be written: No space left on device")
        written.append(path)
        write_model(model, path, plain=plain)

    with monkeypatch.context() as patch:
        patch.setattr(models, "write_model", fill_the_disk)
        result = run("disassemble", forest, folder, *(["--force"] if is_there else []))
    assert result.exit_code == 1
    assert result.stderr == f"error: {folder / 'tree-002.silva'}: cannot be written: No space left on device\n"
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert folder.exists() == is_there
    assert run("disassemble", forest, folder, *(["--force"] if is_there else [])).exit_code == 0
