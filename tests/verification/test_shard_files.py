"""Shards of a verification, joined again: the report of one run, or a clear word why not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import run, write
from support.reports import without_times

from metasilvae.io.fingerprints import fingerprint
from metasilvae.model import PredictionTable
from metasilvae.verification.shards import Shard, join_results
from metasilvae.verification.verdicts import Outcome

N = 3


def verify_shards(tree: str, rows: str, folder: Path, *options: str, suffix: str = "jsonl") -> list[str]:
    paths = [str(folder / f"part-{number}.{suffix}") for number in range(1, N + 1)]
    for number, path in enumerate(paths, 1):
        run("verify", tree, rows, "--shard", f"{number}/{N}", "-o", path, *options)
    return paths


@pytest.mark.parametrize("report_format", ["text", "silva", "json", "jsonl", "csv"])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "jsonl.gz"])
def test_merged_shards_are_the_report_of_one_run(
    tree: str, rows: str, tmp_path: Path, report_format: str, suffix: str
) -> None:
    options = ["--epsilon", "0.1"]
    paths = verify_shards(tree, rows, tmp_path, *options, suffix=suffix)
    requirements = ["--require", "accuracy>=0.1"]
    whole = run("verify", tree, rows, *options, *requirements, "--format", report_format)
    merged = run("merge", *reversed(paths), *requirements, "--format", report_format)
    assert without_times(merged.stdout, report_format) == without_times(whole.stdout, report_format)
    assert merged.stderr == whole.stderr


def test_counterexamples_of_shards_keep_their_rows(tree: str, rows: str, tmp_path: Path) -> None:
    whole, *parts = (str(tmp_path / f"c{number}.csv") for number in range(N + 1))
    run("verify", tree, rows, "--epsilon", "0.1", "--counterexamples", whole)
    for number, part in enumerate(parts, 1):
        run("verify", tree, rows, "--epsilon", "0.1", "--shard", f"{number}/{N}", "--counterexamples", part)
    lines = [Path(part).read_text().splitlines() for part in parts]
    assert len({head for head, *_ in lines}) == 1
    assert sorted(line for _, *rest in lines for line in rest) == sorted(Path(whole).read_text().splitlines()[1:])


def test_requirements_decide_the_exit_code(tree: str, rows: str, tmp_path: Path) -> None:
    paths = verify_shards(tree, rows, tmp_path, "--epsilon", "0.1")
    run("merge", *paths, "--require", "accuracy>=0.9", code=3)
    run("merge", *paths, "--require", "accuracy>=x", code=2)


def test_a_file_of_boxes_is_divided_like_the_rows(tree: str, rows: str, tmp_path: Path) -> None:
    values = [line.split(",")[1:] for line in Path(rows).read_text().splitlines()[1:]]
    lines = [" ".join(f"[{value};{float(value) + 0.1 * n}]" for value in row) for n, row in enumerate(values)]
    boxes = write(tmp_path, "boxes.txt", "\n".join(lines))
    paths = verify_shards(tree, rows, tmp_path, "--perturbation", "from-file", boxes)
    whole = run("verify", tree, rows, "--perturbation", "from-file", boxes, "--format", "csv")
    assert run("merge", *paths, "--format", "csv").stdout == whole.stdout


class TestWhatDoesNotFit:
    @pytest.fixture
    def paths(self, tree: str, rows: str, tmp_path: Path) -> list[str]:
        return verify_shards(tree, rows, tmp_path, "--epsilon", "0.1")

    def refuse(self, *paths: object) -> str:
        found = run("merge", *paths, code=1)
        assert found.stdout == ""
        assert len(found.stderr.splitlines()) == 1
        return found.stderr

    def test_a_shard_is_missing(self, paths: list[str]) -> None:
        assert self.refuse(paths[0]) == "error: 2 of 3 shards are missing: 2, 3; verify them, then merge all\n"

    def test_a_shard_comes_twice(self, paths: list[str], tmp_path: Path) -> None:
        copy = write(tmp_path, "copy.jsonl", Path(paths[1]).read_bytes())
        assert "copy.jsonl: is shard 2/3 like " in self.refuse(*paths, copy)

    def test_another_number_of_shards(self, paths: list[str], tree: str, rows: str, tmp_path: Path) -> None:
        run("verify", tree, rows, "--epsilon", "0.1", "--shard", "2/4", "-o", tmp_path / "other.jsonl")
        assert "belongs to another number of shards than" in self.refuse(paths[0], tmp_path / "other.jsonl")

    def test_another_model(self, paths: list[str], tree: str, rows: str, tmp_path: Path) -> None:
        """By the same name: what counts is the content."""
        write(tmp_path, "tree.silva", Path(tree).read_text().replace("0.25", "0.251"))
        run("verify", tree, rows, "--epsilon", "0.1", "--shard", "3/3", "-o", paths[2])
        assert "part-3.jsonl: was verified with another model than" in self.refuse(*paths)

    def test_other_data(self, paths: list[str], tree: str, rows: str, tmp_path: Path) -> None:
        write(tmp_path, "rows.csv", Path(rows).read_text().replace("0.51", "0.52"))
        run("verify", tree, rows, "--epsilon", "0.1", "--shard", "3/3", "-o", paths[2])
        assert "part-3.jsonl: was verified on other data than" in self.refuse(*paths)

    @pytest.mark.parametrize("options", [["--epsilon", "0.1000000001"], ["--perturbation", "l_inf-clip-all 0.1 0 1"]])
    def test_another_perturbation(self, paths: list[str], tree: str, rows: str, options: list[str]) -> None:
        run("verify", tree, rows, *options, "--shard", "3/3", "-o", paths[2])
        assert "part-3.jsonl: was verified under another perturbation than" in self.refuse(*paths)

    def test_another_voting(self, paths: list[str], tree: str, rows: str) -> None:
        run("verify", tree, rows, "--epsilon", "0.1", "--voting", "average", "--shard", "3/3", "-o", paths[2])
        assert "part-3.jsonl: was verified with another voting than" in self.refuse(*paths)

    def test_other_limits(self, paths: list[str], tree: str, rows: str) -> None:
        run("verify", tree, rows, "--epsilon", "0.1", "--sample-timeout", "9", "--shard", "3/3", "-o", paths[2])
        assert "part-3.jsonl: was verified with other limits than" in self.refuse(*paths)

    def test_a_file_without_its_end(self, paths: list[str], tmp_path: Path) -> None:
        lines = Path(paths[1]).read_text().splitlines(keepends=True)
        for text in ("".join(lines[:-1]), "".join(lines)[:-30], "", "row,label\n"):
            cut = write(tmp_path, "cut.jsonl", text)
            assert "cut.jsonl: is not a complete file of a shard; expected" in self.refuse(paths[0], cut, paths[2])

    def test_a_row_is_gone_or_changed(self, paths: list[str], tmp_path: Path) -> None:
        lines = Path(paths[0]).read_text().splitlines(keepends=True)
        odd = [lines[1:], [lines[0].replace('"row": 0', '"row": 1'), *lines[1:]]]
        odd += [[lines[0].replace("ROBUST", "SOUND"), *lines[1:]]]
        for changed in odd:
            path = write(tmp_path, "odd.jsonl", "".join(changed))
            assert "rows are not those of shard 1/3 of 7 rows; verify it again" in self.refuse(path, *paths[1:])

    def test_a_report_of_all_rows(self, tree: str, rows: str, tmp_path: Path) -> None:
        run("verify", tree, rows, "-o", tmp_path / "all.jsonl")
        assert "all.jsonl: holds the results of all rows, not of a shard" in self.refuse(tmp_path / "all.jsonl")

    def test_the_output_is_one_of_the_shards(self, paths: list[str]) -> None:
        assert "is read by this command" in run("merge", *paths, "-o", paths[0], code=2).stderr


class TestShardsOfVerify:
    def test_more_shards_than_rows(self, tree: str, rows: str) -> None:
        found = run("verify", tree, rows, "--shard", "8/8", code=2)
        assert "7 rows cannot be divided into 8 shards; use at most 7" in found.stderr

    @pytest.mark.parametrize("word", ["0/3", "4/3", "x", "1"])
    def test_shards_that_are_none(self, tree: str, rows: str, word: str) -> None:
        assert "Invalid value for '--shard'" in run("verify", tree, rows, "--shard", word, code=2).stderr

    @pytest.mark.parametrize("options", [["--format", "csv"], ["-o", "x.csv"], ["--format", "text"]])
    def test_formats_that_cannot_be_merged(self, tree: str, rows: str, options: list[str]) -> None:
        found = run("verify", tree, rows, "--shard", "1/2", *options, code=2)
        assert "--shard writes jsonl or json for `merge` to read, not " in found.stderr

    def test_a_shard_in_a_pipe(self, tree: str, rows: str) -> None:
        records = [json.loads(line) for line in run("verify", tree, rows, "--shard", "2/3").stdout.splitlines()]
        assert [record["row"] for record in records[:-1]] == [1, 4]
        assert records[-1]["summary"]["shard"]["number"] == 2

    def test_a_row_without_an_admissible_point_is_named_by_its_number(self, tree: str, rows: str) -> None:
        options = ["--epsilon", "0.01", "--tiers", "2", "1", "1", "--shard", "2/3"]
        assert "row 1: no point of its box" in run("verify", tree, rows, *options, code=1).stderr


@given(st.lists(st.sampled_from([(0,), (1,), (0, 1)]), min_size=4, max_size=40), st.integers(1, 4))
def test_outcomes_in_pieces_are_joined_in_order(predictions: list[tuple[int, ...]], count: int) -> None:
    def outcome_of(rows: list[int]) -> Outcome:
        sets = tuple(sorted({predictions[row] for row in rows}))
        ids = np.array([sets.index(predictions[row]) for row in rows], dtype=np.int32)
        numbers = np.array(rows)
        reasons = {position: f"row {row}" for position, row in enumerate(rows) if row % 3 == 2}
        stability = (numbers % 3).astype(np.uint8)
        return Outcome(PredictionTable(sets, ids), numbers % 2 == 0, stability, seconds=0.5, reasons=reasons)

    rows = [Shard(number, count).take_rows(len(predictions)) for number in range(1, count + 1)]
    joined = join_results(rows, [outcome_of(part.tolist()) for part in rows])
    whole = outcome_of(list(range(len(predictions))))
    assert [joined.predictions.sets[number] for number in joined.predictions.ids] == predictions
    assert (joined.is_correct == whole.is_correct).all()
    assert (joined.stability == whole.stability).all()
    assert joined.reasons == whole.reasons
    assert joined.seconds == 0.5 * count


def test_fingerprints_tell_content_apart() -> None:
    zeros = np.zeros(4)
    found = {
        fingerprint(zeros),
        fingerprint(zeros.reshape(2, 2)),
        fingerprint(zeros.astype(np.int64)),
        fingerprint(np.array([0, 0, 0, 1e-300])),
        fingerprint(zeros[:0]),
        fingerprint(zeros, ("a", "b")),
        fingerprint(zeros, ("a,b",)),
    }
    assert len(found) == 7
    assert fingerprint(zeros) == fingerprint(np.zeros(8)[::2])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"n_rows": 7', '"n_rows": 7000000000000000'),
        ('"n_rows": 7', '"n_rows": 1e400'),
        ('"n_features": 2', '"n_features": -2'),
        ('"count": 1', '"count": true'),
        ('"prediction": ["a"]', '"prediction": {"a": 1}'),
        ('"prediction": ["a"]', '"prediction": []'),
        ('"label": "a"', '"label": ["a"]'),
        ('"seconds": ', '"seconds": null, "other": '),
        ('{"row": 0', "[" * 100_000 + '{"row": 0'),
        ('{"row": 0', '[]\n{"row": 0'),
    ],
)
def test_mangled_shards(tree: str, rows: str, tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "shard.jsonl"
    run("verify", tree, rows, "--epsilon", "0.1", "--shard", "1/1", "-o", path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    result = run("merge", path, code=1)
    assert result.stderr.startswith(f"error: {path}: ")
    assert len(result.stderr.splitlines()) == 1
