"""The verify command."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import signal
from pathlib import Path

import pytest
from support.command import HARD_FOREST, ROWS, TREE, run, write

from metasilvae.output.text.terminal import RowBar

# Recorded from silva on these very files.
SILVA_HEADER = (
    "Classifier                       Dataset                                ID    Label         Concrete     Result"
    "   Time (s)"
)
SILVA_ROWS = """\
tree.silva rows.csv        0        a                a     ROBUST
tree.silva rows.csv        1       bb              a,bb     BROKEN
tree.silva rows.csv        2        c              bb,c     BROKEN
tree.silva rows.csv        3        a            a,bb,c     BROKEN
tree.silva rows.csv        4       bb              bb,c     BROKEN
tree.silva rows.csv        5 averyverylonglabel                a VULNERABLE
tree.silva rows.csv        6        a                a    FRAGILE
"""
SILVA_SUMMARY = """\
[SUMMARY]       Size   Time (s)    Correct      Wrong     Stable   Unstable    No info     Robust    Fragile\
   Vulnerable     Broken
[SUMMARY]          7                     2          5          2          5          0          1          1\
            1          4
"""
# --max-print-length: header, then the rows 0 and 3.
SILVA_PATHS = {
    "32": """\
Classifier                       Dataset                                ID
...lder/name/for/both/tree.silva ...folder/name/for/both/rows.csv        0        a                a     ROBUST
...lder/name/for/both/tree.silva ...folder/name/for/both/rows.csv        3        a            a,bb,c     BROKEN
""",
    "64": f"""\
{"Classifier":64} {"Dataset":64}       ID
a/rather/long/folder/name/for/both/tree.silva a/rather/long/folder/name/for/both/rows.csv        0        a\
                a     ROBUST
a/rather/long/folder/name/for/both/tree.silva a/rather/long/folder/name/for/both/rows.csv        3        a\
            a,bb,c     BROKEN
""",
    "-1": """\
Classifier Dataset       ID
a/rather/long/folder/name/for/both/tree.silva a/rather/long/folder/name/for/both/rows.csv        0        a\
                a     ROBUST
a/rather/long/folder/name/for/both/tree.silva a/rather/long/folder/name/for/both/rows.csv        3        a\
            a,bb,c     BROKEN
""",
    "12": """\
Classifier   Dataset            ID
...ree.silva .../rows.csv        0        a                a     ROBUST
...ree.silva .../rows.csv        3        a            a,bb,c     BROKEN
""",
    "3": """\
Classifier Dataset        ID
...silva ...s.csv        0        a                a     ROBUST
...silva ...s.csv        3        a            a,bb,c     BROKEN
""",
}
BOXES = """\
[0;0.2] [0;0.2]
[0.4;0.6] [0.8;1]
[0.8;1] [0.6;0.7]
[0;1] [0;1]
[0.5;0.6] [0;0]
[0;1] [0;0.2]
[0.2;0.2] [0.1;0.3]
"""
SILVA_ON_BOXES = ["ROBUST", "BROKEN", "VULNERABLE", "BROKEN", "BROKEN", "BROKEN", "FRAGILE"]


def without_times(report: str) -> str:
    """A silva report without its last column and without the time in its summary; both have 10 characters."""
    lines = []
    for line in report.splitlines():
        if line.startswith("[SUMMARY]"):
            assert line[21:31] == "  Time (s)" or float(line[21:31]) >= 0
            lines.append(line if "Time" in line else f"{line[:21]}{'':10}{line[31:]}")
        else:
            assert line.endswith("Time (s)") or float(line[-10:]) >= 0
            lines.append(line if line.endswith("Time (s)") else line[:-11])
    return "".join(f"{line}\n" for line in lines)


def verdicts(*arguments: object) -> list[str]:
    lines = run("verify", "--format", "jsonl", *arguments).stdout.splitlines()
    return [json.loads(line)["verdict"] for line in lines[:-1]]


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_here")
@pytest.mark.filterwarnings("ignore")
class TestSilvaReport:
    rows = ROWS.replace("c,0.1,0.1", "averyverylonglabel,0.1,0.1")

    def test_equals_silvas(self, tmp_path: Path) -> None:
        write(tmp_path, "tree.silva", TREE)
        write(tmp_path, "rows.csv", self.rows)
        report = run("verify", "tree.silva", "rows.csv", "--perturbation", "l_inf", "0.1", "--format", "silva").stdout
        assert without_times(report) == f"{SILVA_HEADER}\n{SILVA_ROWS}{SILVA_SUMMARY}"

    @pytest.mark.parametrize("length", SILVA_PATHS)
    def test_cuts_paths_as_silva_does(self, tmp_path: Path, length: str) -> None:
        folder = "a/rather/long/folder/name/for/both"
        paths = [f"{folder}/tree.silva", f"{folder}/rows.csv"]
        for path, text in zip(paths, (TREE, self.rows), strict=True):
            write(tmp_path, path, text)
        report = run("verify", *paths, "--epsilon", 0.1, "--max-print-length", length, "--format", "silva").stdout
        lines = without_times(report).splitlines()
        header = lines[0].removesuffix(SILVA_HEADER[SILVA_HEADER.index("    Label") :])
        assert "".join(f"{line}\n" for line in (header, lines[1], lines[4])) == SILVA_PATHS[length]

    def test_standard_input_has_a_name_without_blanks(self, tmp_path: Path) -> None:
        write(tmp_path, "tree.silva", TREE)
        report = run("verify", "tree.silva", "-", "--format", "silva", stdin=self.rows).stdout
        assert report.splitlines()[1].split()[:6] == ["tree.silva", "<stdin>", "0", "a", "a", "ROBUST"]

    def test_times_keep_their_column(self) -> None:
        from support.reports import report_of

        from metasilvae.output.text.verdicts import write_silva

        for seconds in (0.0, 1.23456789e-7, 0.000123456789, 0.123456789, 12345.6789, 123456.789):
            report = "".join(write_silva(report_of(seconds=seconds)))
            without_times(report.replace(" timeout\n", "\n"))


def test_boxes_from_a_file_as_silva(tree: str, rows: str, tmp_path: Path) -> None:
    boxes = write(tmp_path, "boxes.txt", BOXES)
    for words in (["from-file", boxes], ["from_file", boxes]):
        assert verdicts(tree, rows, "--perturbation", *words) == SILVA_ON_BOXES
    piped = run("verify", tree, rows, "--perturbation", "from-file", "-", "--format", "csv", stdin=BOXES).stdout
    assert [record["verdict"] for record in csv.DictReader(io.StringIO(piped))] == SILVA_ON_BOXES


def test_clipped_balls_as_silva(tree: str, rows: str) -> None:
    found = verdicts(tree, rows, "--perturbation", "l_inf-clip-all", "0.6", "0", "0.5")
    assert found == ["FRAGILE", "VULNERABLE", "BROKEN", "BROKEN", "BROKEN", "BROKEN", "FRAGILE"]


@pytest.mark.parametrize(
    "words",
    [
        ["--epsilon", "0.1"],
        ["--epsilon=0.1"],
        ["--epsilon", "1e-1"],
        ["--perturbation", "l_inf", "0.1"],
        ["--perturbation=l_inf", "0.1"],
        ["--perturbation=l_inf 0.1"],
        ["--perturbation", "l_inf 0.1"],
        ["--perturbation", "l_inf-clip-all", "0.1", "-1", "2"],
        ["--perturbation", "l_inf", "0.1", "--tiers", "2", "0", "0"],
        ["--tiers=2", "0", "0", "--perturbation", "l_inf", "0.1"],
        ["--tiers", "2 0 0", "--epsilon", "0.1"],
        ["--epsilon", ".1", "--abstraction", "interval", "--sample-timeout", "0.5", "--seed", "1"],
    ],
    ids=" ".join,
)
def test_the_same_request_in_many_words(tree: str, rows: str, words: list[str]) -> None:
    expected = ["ROBUST", "BROKEN", "BROKEN", "BROKEN", "BROKEN", "VULNERABLE", "FRAGILE"]
    assert verdicts(tree, rows, *words) == expected
    assert verdicts(*words, tree, rows) == expected
    assert verdicts(tree, *words, "--", rows) == expected


def test_without_a_perturbation_nothing_changes(tree: str, rows: str) -> None:
    assert set(verdicts(tree, rows)) == {"ROBUST", "VULNERABLE"}


def test_one_hot_groups(tmp_path: Path) -> None:
    tree = write(
        tmp_path, "m.silva", "classifier-decision-tree 3 2 a b SPLIT 0 0.5 SPLIT 1 0.5 LEAF 1 0 LEAF 0 1 LEAF 0 1"
    )
    rows = write(tmp_path, "r.csv", "a,0,0,1\n")
    # With features 0 to 2 one-hot, the row moves to (1,0,0); alone, feature 2 has to stay 1.
    assert verdicts(tree, rows, "--epsilon", 1, "--tiers", 3, 1, 1, 1) == ["FRAGILE"]
    assert verdicts(tree, rows, "--perturbation", "l_inf-clip-all", 1, 0, 0.75, "--tiers", 3, 0, 0, 0) == ["FRAGILE"]
    assert verdicts(tree, rows, "--epsilon", 0.75, "--tiers", 3, 1, 1, 1) == ["ROBUST"]
    assert verdicts(tree, rows, "--epsilon", 0.75) == ["FRAGILE"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--perturbation", "l_1", "0.1"], "'l_1' is not one of l_inf, l_inf-clip-all, from-file."),
        (["--perturbation", "l_inf"], "'l_inf': expected 'l_inf E'."),
        (["--perturbation", "l_inf", "--jobs", "1"], "'l_inf': expected 'l_inf E'."),
        (["--perturbation", "l_inf-clip-all", "0.1", "0"], "expected 'l_inf-clip-all E MIN MAX'"),
        (["--perturbation", "l_inf-clip-all", "0.1", "1", "0"], "[1, 0], is empty"),
        (["--perturbation", ""], "'' is not one of"),
        (["--perturbation"], "requires an argument"),
        (["--perturbation", "l_inf", "x"], "'x' is not a number"),
        (["--perturbation", "l_inf", "-0.1"], "epsilon is -0.1; it must be finite and not negative"),
        (["--epsilon", "nan"], "'nan' is not a number"),
        (
            ["--epsilon", "inf"],
            "epsilon is inf; it must be finite and not negative; an --attack file with radius = inf",
        ),
        (["--epsilon", "1", "--perturbation", "l_inf", "1"], "exclude each other; give one of them"),
        (["--tiers", "2", "0"], "2 numbers announced, 1 follow"),
        (["--tiers", "x"], "expected the number of values"),
        (["--tiers", "²"], "expected the number of values"),
        (["--tiers", "9" * 30], "expected the number of values"),
        (["--tiers", "2", "0", "0.5"], "expected the number of values"),
        (["--tiers", "2", "0", "-1"], "tier -1: a tier is 0 (no group) or the number of a group"),
        (["--tiers", "2", "0", "0", "0"], "unexpected extra argument"),
        (["--tiers", "3", "0", "0", "0"], "3 tiers were given for 2 features"),
        (["--voting", "softargmax"], "voting 'softargmax' does not fit"),
        (["--voting", "min"], "'min' is not one of 'max', 'average', 'softargmax'"),
        (["--sample-timeout", "0"], "0.0 is not in the range x>0"),
        (["--sample-timeout", "nan"], "'nan' is not a number"),
        (["--abstraction", "zonotope"], "'zonotope' is not one of"),
        (["--max-print-length", "-2"], "-2 is not in the range x>=-1"),
        (["--require", "stability"], "requirement 'stability' is not understood"),
        (["--require", "speed>1"], "with a metric out of accuracy, stability, robust_accuracy"),
        (["--require", "stability>=80"], "write 80% or 0.8"),
        (["--counterexamples", "-"], "two results would be written to standard output"),
        (["--counterexamples-format", "xml"], "'xml' is not one of"),
        (["--input-format", "libsvm", "--label-column", "last"], "label column and header are for CSV data"),
    ],
)
def test_wrong_usage(tree: str, rows: str, words: list[str], message: str) -> None:
    assert message in re.sub(r"\s+", " ", run("verify", tree, rows, *words, code=2).stderr)


def test_results_never_share_a_file_or_replace_an_input(tree: str, rows: str, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(rows)
    for output in (rows, tree, tmp_path / "link.csv", f"{tmp_path}/./rows.csv"):
        for option in ("--output", "--counterexamples"):
            assert "is read by this command" in run("verify", tree, rows, option, output, code=2).stderr
    words = ["--output", tmp_path / "x", "--counterexamples", f"{tmp_path}/../{tmp_path.name}/x"]
    assert "two results would be written to" in run("verify", tree, rows, *words, code=2).stderr
    assert Path(rows).read_text() == ROWS
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("option", ["--output", "--counterexamples"])
def test_an_output_is_refused_before_any_work(tmp_path: Path, option: str) -> None:
    # The model does not exist either, but that would be noticed later.
    message = run("verify", "no.silva", "no.csv", option, tmp_path / "no" / "out.csv", code=1).stderr
    assert message == (
        f"error: {tmp_path}/no/out.csv: the folder {tmp_path.resolve()}/no does not exist; create it first\n"
    )
    assert "is a folder" in run("verify", "no.silva", "no.csv", option, tmp_path, code=1).stderr
    assert "the output path is empty" in run("verify", "no.silva", "no.csv", option, "", code=1).stderr


@pytest.mark.parametrize(
    ("requirements", "code"),
    [
        (["accuracy>=0.28"], 0),
        (["accuracy>=0.29"], 3),
        (["stability==2/7"], 2),
        (["stability>0.28", "robustness<15%"], 0),
        (["stability>0.28", "robustness>15%"], 3),
    ],
)
def test_requirements_decide_the_exit_code(tree: str, rows: str, requirements: list[str], code: int) -> None:
    words = [word for text in requirements for word in ("--require", text)]
    result = run("verify", tree, rows, "--epsilon", 0.1, *words, "--format", "silva", code=code)
    if code != 2:
        assert len(result.stderr.splitlines()) == len(requirements)
        assert ("violated" in result.stderr) == (code == 3)


def test_requirements_in_every_format(tree: str, rows: str, tmp_path: Path) -> None:
    words = ["--epsilon", "0.1", "--require", "accuracy>0.9", "--format"]
    line = "required accuracy>0.9: violated (accuracy is 0.285714)\n"
    text = run("verify", tree, rows, *words, "text", code=3)
    assert text.stdout.endswith(line)
    assert text.stderr == ""
    document = run("verify", tree, rows, *words, "json", code=3)
    assert json.loads(document.stdout)["requirements"] == [{"requirement": "accuracy>0.9", "result": "violated"}]
    assert document.stderr == line
    assert run("verify", tree, rows, *words, "csv", "-o", tmp_path / "r.csv", code=3).stdout.endswith(line)


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.json", "{"),
        ("r.JSONL", '{"row": 0'),
        ("r.csv", "row,label,prediction,verdict,reason\n0,a,a,ROBUST,\n1,bb,"),
        ("r.text", "model  "),
        ("r.silva", "Classifier "),
        ("r.txt", "Classifier "),
        ("r", "Classifier "),
    ],
)
def test_the_suffix_of_the_output_tells_its_form(tree: str, rows: str, tmp_path: Path, name: str, start: str) -> None:
    result = run("verify", tree, rows, "--epsilon", 0.1, "--output", tmp_path / name)
    assert (tmp_path / name).read_text().startswith(start)
    assert result.stdout.startswith("model   ")  # the summary for people goes to standard output
    # A format that was asked for wins.
    run("verify", tree, rows, "--epsilon", 0.1, "--output", tmp_path / name, "--format", "jsonl")
    assert (
        (tmp_path / name).read_text().startswith('{"row": 0, "label": "a", "prediction": ["a"], "verdict": "ROBUST"}\n')
    )


def test_a_terminal_gets_text_and_a_pipe_silvas_report(tree: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from metasilvae.cli import verify

    assert run("verify", tree, rows).stdout.startswith("Classifier ")

    class Terminal:
        def isatty(self) -> bool:
            return True

    class FakeSys:
        stdout = Terminal()

    monkeypatch.setattr(verify, "sys", FakeSys)
    assert run("verify", tree, rows).stdout.startswith("model  ")


def test_counterexamples_are_silvas_boxes_on_request(tree: str, rows: str, tmp_path: Path) -> None:
    path = tmp_path / "boxes.txt"
    words = ["--epsilon", "0.0625", "--counterexamples", path, "--counterexamples-format", "silva"]
    run("verify", tree, rows, *words)
    lines = dict(line.split(": ") for line in path.read_text().splitlines())
    assert set(lines) == {"1", "2", "4", "6"}
    for row, text in lines.items():
        box = json.loads(text)
        values = [float(word) for word in ROWS.splitlines()[int(row) + 1].split(",")[1:]]
        assert all(x - 0.0625 <= low <= high <= x + 0.0625 for x, (low, high) in zip(values, box, strict=True))


def test_no_counterexamples_no_rows(tree: str, rows: str, tmp_path: Path) -> None:
    run("verify", tree, rows, "--counterexamples", tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text() == "label,x0,x1,#row,#prediction,#perturbed_prediction\n"


def test_counterexamples_can_go_to_a_pipe(tree: str, rows: str, tmp_path: Path) -> None:
    words = ["--epsilon", 0.1, "--counterexamples", "-", "--output", tmp_path / "report.json"]
    assert run("verify", tree, rows, *words).stdout.startswith("label,x0,x1,#row")
    assert json.loads((tmp_path / "report.json").read_text())["counts"]["unstable"] == 5


class TestForests:
    ROWS = "a,0.1,0\nb,0.9,0\na,0.4,0\n"

    def test_verdicts_and_counterexamples(self, forest: str, tmp_path: Path) -> None:
        rows = write(tmp_path, "r.csv", self.ROWS)
        words = ["--epsilon", 0.2, "--counterexamples", tmp_path / "c.csv", "--format", "csv"]
        assert run("verify", forest, rows, *words).stdout.splitlines() == [
            "row,label,prediction,verdict,reason", '0,a,a,ROBUST,', '1,b,"a,b",VULNERABLE,', "2,a,a,FRAGILE,",
        ]  # fmt: skip
        assert (tmp_path / "c.csv").read_text().splitlines()[1:] == ['a,0.5000000000000001,0.0,2,a,"a,b"']
        assert run("predict", forest, tmp_path / "c.csv").stdout == "a,b\n"
        words[3:] = ["-", "--counterexamples-format", "silva", "--output", tmp_path / "report"]
        assert run("verify", forest, rows, *words).stdout == "2: [[0.5000000000000001,0.6000000000000001],[-0.2,0.2]]\n"

    def test_every_voting(self, forest: str, tmp_path: Path) -> None:
        rows = write(tmp_path, "r.csv", self.ROWS)
        for voting, verdicts in (("max", "ROBUST VULNERABLE FRAGILE"), ("average", "ROBUST ROBUST FRAGILE")):
            report = run("verify", forest, rows, "--epsilon", 0.2, "--voting", voting, "--format", "silva").stdout
            assert [line.split()[5] for line in report.splitlines()[1:4]] == verdicts.split()
        assert "does not fit" in run("verify", forest, rows, "--voting", "softargmax", code=2).stderr

    def test_the_reason_of_an_undecided_row_is_reported(self, tmp_path: Path) -> None:
        forest, rows = write(tmp_path, "hard.silva", HARD_FOREST), write(tmp_path, "r.csv", self.ROWS)
        words = ["verify", forest, rows, "--epsilon", 0.6]
        assert [line.split()[5] for line in run(*words).stdout.splitlines()[1:4]] == ["ROBUST", "VULNERABLE", "ROBUST"]
        words += ["--sample-steps", 1, "--format"]
        lines = run(*words, "silva").stdout.splitlines()
        assert [(line.split()[5], line.split()[7]) for line in lines[1:4]] == [("NO-INFO", "steps")] * 3
        assert len(lines[1].split()) == 8
        assert "NO-INFO                 3   not decided within the budget: 3 steps\n" in run(*words, "text").stdout
        assert run(*words, "csv").stdout.splitlines()[1] == "0,a,a,NO-INFO,steps"
        assert [row["reason"] for row in json.loads(run(*words, "json").stdout)["rows"]] == ["steps"] * 3
        assert "undecided" in run(*words, "text", "--require", "stability>=0.5", code=4).stdout

    def test_fractions_of_a_second(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("forest.QUICK_STEPS", "budget.STEPS_PER_SLICE"):
            monkeypatch.setattr(f"metasilvae.verification.{name}", 1)
        forest, rows = write(tmp_path, "hard.silva", HARD_FOREST), write(tmp_path, "r.csv", self.ROWS)
        report = run("verify", forest, rows, "--epsilon", 0.6, "--sample-timeout", 1e-9, "--format", "text").stdout
        assert "not decided within the budget: 3 timeout\n" in report

    def test_ctrl_c_reports_what_is_decided(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("metasilvae.verification.forest.ROWS_PER_CHUNK", 1)
        signals = iter([signal.SIGINT])
        monkeypatch.setattr(RowBar, "advance", lambda self, n_rows: [signal.raise_signal(s) for s in signals])
        forest, rows = write(tmp_path, "hard.silva", HARD_FOREST), write(tmp_path, "r.csv", self.ROWS)
        result = run("verify", forest, rows, "--epsilon", 0.6, "--jobs", 1, "--format", "csv", code=130)
        assert [line.split(",")[3:] for line in result.stdout.splitlines()[1:]] == [
            ["ROBUST", ""], ["NO-INFO", "interrupted"], ["NO-INFO", "interrupted"],
        ]  # fmt: skip
        assert result.stderr == "interrupted; 1 of 3 rows are decided\n"

    def test_one_hot_groups(self, tmp_path: Path) -> None:
        """Two trees that could both say b only if both features were 1."""
        tree = "classifier-decision-tree 2 2 a b\nSPLIT {} 0.5\nLEAF 1 0\nLEAF 0 1\n"
        text = (
            "classifier-forest 3\n" + tree.format(0) + tree.format(1) + "classifier-decision-tree 2 2 a b\nLEAF 1 0\n"
        )
        forest, rows = write(tmp_path, "f.silva", text), write(tmp_path, "r.csv", "a,1,0\n")
        words = ["verify", forest, rows, "--epsilon", 1, "--format", "csv"]
        assert run(*words).stdout.splitlines()[1] == "0,a,a,FRAGILE,"
        assert run(*words, "--tiers", 2, 1, 1).stdout.splitlines()[1] == "0,a,a,ROBUST,"


def test_swapped_arguments_get_a_hint(tree: str, rows: str) -> None:
    assert (
        "is this a data file? where both are needed, MODEL comes before DATA"
        in run("verify", rows, tree, code=1).stderr
    )
    assert run("verify", tree, tree, code=1).stderr == (
        f"error: {tree}: this is a model, not a data set; where both are needed, MODEL comes before DATA\n"
    )


def test_a_label_that_begins_like_a_model_is_data(tree: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "r.csv", "a,0,0\nclassifier-forest,0,0\n")
    assert "labels that" in run("verify", tree, rows).stderr


def test_unfit_data(tree: str, tmp_path: Path) -> None:
    wide = write(tmp_path, "wide.csv", "a,1,2,3\n")
    assert f"{wide} has 3 features, {tree} expects 2" in run("verify", tree, wide, code=1).stderr
    other = write(tmp_path, "other.csv", "x,1,2\n")
    assert "no label of" in run("verify", tree, other, code=1).stderr


def test_sparse_data_are_as_wide_as_the_model(tree: str, tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.libsvm", "a 1:0.1\nc 1:0.9 2:0.9\n")
    assert verdicts(tree, rows) == ["ROBUST", "VULNERABLE"]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    tree = write(tmp_path, "tr\udcffe.silva", TREE)
    rows = write(tmp_path, "rows.csv", ROWS)
    for report_format in ("text", "silva", "json", "jsonl"):
        run("verify", tree, rows, "--format", report_format, "-o", tmp_path / "out")
        assert b"tr\xffe" in (tmp_path / "out").read_bytes() or "json" in report_format
    run("evaluate", tree, rows, "-o", tmp_path / "out")
    assert b"tr\xffe" in (tmp_path / "out").read_bytes()


def test_counterexamples_are_data_that_bear_out_the_verdicts(tree: str, rows: str, tmp_path: Path) -> None:
    path = tmp_path / "counterexamples.csv"
    run("verify", tree, rows, "--epsilon", 0.1, "--counterexamples", path)
    written = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [record["#row"] for record in written] == ["1", "2", "3", "4", "6"]
    before = run("predict", tree, rows).stdout.splitlines()
    # The notes behind the values are ignored, so the file is data of the model's width.
    after = list(csv.DictReader(io.StringIO(run("predict", tree, path, "--format", "csv").stdout)))
    assert len(after) == len(written)
    for record, found in zip(written, after, strict=True):
        row = int(record["#row"])
        label, *values = ROWS.splitlines()[row + 1].split(",")
        assert found["prediction"] == record["#perturbed_prediction"] != record["#prediction"] == before[row]
        assert found["label"] == record["label"] == label
        for name, value in zip(("x0", "x1"), map(float, values), strict=True):
            assert value - 0.1 <= float(record[name]) <= value + 0.1
    check = run("data", "check", path).stdout
    assert re.search(r"features +2\b", check)


def test_counterexamples_keep_odd_names(tmp_path: Path) -> None:
    tree = write(tmp_path, "m.silva", "classifier-decision-tree 2 2 a b SPLIT 0 0 LEAF 1 0 LEAF 0 1")
    rows = write(tmp_path, "r.csv", 'what,"u, or ""v""",w\n"a",0,5\n"#b",1,6\n')
    run("verify", tree, rows, "--epsilon", 1, "--counterexamples", tmp_path / "c.csv")
    assert run("predict", tree, tmp_path / "c.csv", "--format", "csv").stdout.splitlines()[1:] == ["0,a,b", "1,#b,a"]
    assert "u, or" in run("export", tree, "--to", "text", "--data", tmp_path / "c.csv").stdout


def test_a_gate_on_stability_needs_a_perturbation(tmp_path: Path) -> None:
    tree, rows = write(tmp_path, "tree.silva", TREE), write(tmp_path, "rows.csv", ROWS)
    for metric in ("stability", "robust_accuracy"):
        result = run("verify", tree, rows, "--require", f"{metric}>=0", code=2)
        assert "needs --epsilon, --perturbation or --attack" in result.stderr
    run("verify", tree, rows, "--require", "accuracy>=0", code=0)
    run("verify", tree, rows, "--epsilon", "0", "--require", "stability>=1", code=0)


def test_a_format_of_counterexamples_needs_counterexamples(tmp_path: Path) -> None:
    tree, rows = write(tmp_path, "tree.silva", TREE), write(tmp_path, "rows.csv", ROWS)
    result = run("verify", tree, rows, "--counterexamples-format", "silva", code=2)
    assert "needs --counterexamples FILE" in result.stderr


def test_reports_tell_of_one_hot_groups(tmp_path: Path) -> None:
    tree = write(tmp_path, "one.silva", "classifier-decision-tree 2 2\na b\nSPLIT 0 0.5\nLEAF 1 0\nLEAF 0 1\n")
    rows = write(tmp_path, "one.csv", "a,0,1\nb,1,0\n")
    result = run("verify", tree, rows, "--epsilon", "1", "--tiers", "2", "1", "1", "--format", "text")
    assert "perturbation  l_inf 1 --tiers 2 1 1" in result.stdout


def test_outputs_are_compressed_by_their_names(tmp_path: Path) -> None:
    tree, rows = write(tmp_path, "tree.silva", TREE), write(tmp_path, "rows.csv", ROWS)
    report = tmp_path / "report.json.gz"
    assert run("verify", tree, rows, "--epsilon", "0.1", "-o", report).exit_code == 0
    assert json.loads(gzip.decompress(report.read_bytes()))["perturbation"] == "l_inf 0.1"


def test_requirements_on_classes(tree: str, rows: str) -> None:
    words = ["verify", tree, rows, "--epsilon", "0.1", "--format", "csv"]
    assert "required recall[a]>=0.6: holds (recall[a] is 0.666667)" in run(*words, "--require", "recall[a]>=0.6").stderr
    told = run(*words, "--require", "recall[*]>=0.6", "--require", "roc_auc>=0", code=3).stderr
    assert "required recall[*]>=0.6: violated (recall[bb] is 0)" in told
    assert "required roc_auc>=0: holds" in told
    assert "there are a, bb, c" in run(*words, "--require", "recall[z]>=0.6", code=None).stderr
    without = run("verify", tree, rows, "--require", "robust_accuracy[a]>=0.6", code=2).stderr
    assert "needs --epsilon" in without
    assert "holds" in run("verify", tree, rows, "--require", "f1[a]>=0.6", "--format", "csv").stderr


def test_requirements_on_classes_of_shards(tree: str, rows: str, tmp_path: Path) -> None:
    parts = [tmp_path / f"part-{number}.jsonl" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        run("verify", tree, rows, "--epsilon", "0.1", "--shard", f"{number}/2", "-o", part)
    words = ["merge", *parts, "--format", "csv", "--require"]
    assert "recall[a] is 0.666667" in run(*words, "recall[a]>=0.6").stderr
    assert "balanced_accuracy is 0.222222" in run(*words, "balanced_accuracy>=0.6", code=3).stderr
    assert "which shards do not hold" in run(*words, "roc_auc>=0.6", code=None).stderr
