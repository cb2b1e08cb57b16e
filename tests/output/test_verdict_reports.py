"""Reports of a verification say what was found, in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.reports import FOUND, LABELS, report_of

from metasilvae.output.text.tables import ROWS_PER_PIECE
from metasilvae.output.text.verdicts import VERDICT_FORMATS, VerificationReport


def render(name: str, report: VerificationReport) -> str:
    return "".join(VERDICT_FORMATS[name](report))


def expected_rows() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for row, (label, prediction, _, verdict) in enumerate(FOUND):
        rows.append(
            {"row": row, "label": LABELS[label], "prediction": [LABELS[i] for i in prediction], "verdict": verdict}
            | ({"reason": "timeout"} if verdict == "NO-INFO" else {})
        )
    return rows


COUNTS = {
    "size": 5, "correct": 3, "wrong": 2, "stable": 2, "unstable": 2, "no_info": 1,
    "robust": 1, "fragile": 1, "vulnerable": 1, "broken": 1,
}  # fmt: skip


def test_json() -> None:
    document = json.loads(render("json", report_of(requirements=("stability>=0.5",))))
    assert document.pop("rows") == expected_rows()
    assert document == {
        "model": "m.silva",
        "data": "d.csv",
        "perturbation": "l_inf 0.5",
        "voting": "max",
        "seconds": 0.25,
        "accuracy": 0.6,
        "stability": 0.4,
        "robust_accuracy": 0.2,
        "counts": COUNTS,
        "requirements": [{"requirement": "stability>=0.5", "result": "undecided"}],
    }


def test_jsonl() -> None:
    *rows, last = map(json.loads, render("jsonl", report_of()).splitlines())
    assert rows == expected_rows()
    assert last["summary"]["counts"] == COUNTS
    assert "requirements" not in last["summary"]


def test_csv() -> None:
    records = list(csv.DictReader(io.StringIO(render("csv", report_of()))))
    expected = [
        {**row, "row": str(row["row"]), "prediction": ",".join(row["prediction"]), "reason": row.get("reason", "")}  # type: ignore[arg-type]
        for row in expected_rows()
    ]
    assert records == expected


def test_text() -> None:
    assert render("text", report_of(requirements=("accuracy>=60%", "stability>=0.5"))) == (
        "model         m.silva (tree, 1 leaf, depth 0)\n"
        "data          d.csv (5 rows, 1 features)\n"
        "perturbation  l_inf 0.5\n"
        "\n"
        "accuracy          60.00 %         3 of 5\n"
        "stability         40.00 %         2 of 5\n"
        "robust accuracy   20.00 %         1 of 5\n"
        "\n"
        "ROBUST                  1   correct, no perturbation changes the prediction\n"
        "FRAGILE                 1   correct, some perturbation changes the prediction\n"
        "VULNERABLE              1   consistently wrong (stable, incorrect)\n"
        "BROKEN                  1   wrong, some perturbation changes the prediction\n"
        "NO-INFO                 1   not decided within the budget: 1 timeout\n"
        "\n"
        "verified in 0.25 s\n"
        "required accuracy>=60%: holds (accuracy is 0.6)\n"
        "required stability>=0.5: undecided (stability is between 0.4 and 0.6)\n"
    )


def test_silva() -> None:
    lines = render("silva", report_of()).splitlines()
    assert [line.split()[2:6] for line in lines[1:6]] == [
        [str(row["row"]), row["label"], ",".join(row["prediction"]), row["verdict"]]  # type: ignore[arg-type]
        for row in expected_rows()
    ]
    assert lines[-1].split() == ["[SUMMARY]", "5", "0.25", "3", "2", "2", "2", "1", "1", "1", "1", "1"]


@pytest.mark.parametrize("name", VERDICT_FORMATS)
def test_long_reports_are_written_in_pieces(name: str) -> None:
    repeat = ROWS_PER_PIECE // 5 + 7
    pieces = list(VERDICT_FORMATS[name](report_of(repeat)))
    text = "".join(pieces)
    assert text.endswith("\n")
    if name in ("silva", "jsonl", "csv"):
        assert max(piece.count("\n") for piece in pieces) <= ROWS_PER_PIECE + 1
        assert text.count("ROBUST") == repeat
    if name == "json":
        assert len(json.loads(text)["rows"]) == 5 * repeat
