"""Verdicts recorded from silva, where they are at hand: ../shared/golden beside the repository."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from metasilvae.formats.silva_models import read_model, write_model
from metasilvae.model import ModelDescription

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT.parent / "shared" / "golden"
DATA = ROOT.parent / "shared" / "data"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_golden", ROOT / "scripts" / "check_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_golden"] = module
    spec.loader.exec_module(module)
    return module


check_golden = load_script()
RECORDINGS = list(check_golden.recordings(GOLDEN, DATA)) if (GOLDEN / "index.tsv").exists() else []


@pytest.mark.skipif(not RECORDINGS, reason=f"no recorded verdicts in {GOLDEN}")
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.verdicts.stem)
def test_verdicts_agree_with_silva(recording) -> None:
    assert check_golden.compare(recording).unexplained == []


@pytest.mark.skipif(not RECORDINGS, reason=f"no recorded verdicts in {GOLDEN}")
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.verdicts.stem)
def test_trailers_change_no_verdict(recording, tmp_path: Path) -> None:
    model = read_model(str(recording.model))
    names = tuple(f"LEAF {feature}\nSPLIT 0 1" for feature in range(model.n_features))
    description = ModelDescription(names, "SPLIT", recording.voting, None, {"note": "LEAF 1 2"})
    path = tmp_path / "model.silva"
    write_model(replace(model, description=description), str(path))
    assert check_golden.compare(replace(recording, model=path)).unexplained == []


@pytest.mark.skipif(not RECORDINGS, reason=f"no recorded verdicts in {GOLDEN}")
@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_ties_that_silva_gets_wrong_have_witnesses(epsilon: float) -> None:
    """The rows that FIDELITY.md names."""
    (recording,) = (r for r in RECORDINGS if "collision-detection-rf-25" in r.verdicts.name and r.epsilon == epsilon)
    assert [line.split(":")[0] for line in check_golden.compare(recording).proved] == ["row 929", "row 955"]


def test_the_script_counts_differing_rows(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch) -> None:
    """A recording of our own with one wrong verdict: the comparison must be able to fail."""
    import gzip

    from support.command import ROWS, TREE, write

    write(tmp_path, "golden/models/tree.silva", TREE)
    write(tmp_path, "data/small/test.csv.gz", gzip.compress(ROWS.encode()))
    header = "verdicts\tmodel\tdataset\trows\tepsilon\tvoting\n"
    write(tmp_path, "golden/index.tsv", f"{header}v.tsv\ttree.silva\tsmall\t3\t0.1\tmax\n")
    lines = ["row\tlabel\tpredicted\tverdict", "0\ta\ta\tROBUST", "1\tbb\ta,bb\tBROKEN", "2\tc\tbb,c\tBROKEN"]
    for line, code, counts in (
        (lines[1], 0, "0 differ, 0 ties"),
        ("0\ta\ta\tFRAGILE", 1, "1 differ, 0 ties"),
        ("0\ta\ta,bb\tROBUST", 1, "1 differ, 0 ties"),
    ):
        write(tmp_path, "golden/verdicts/v.tsv", "\n".join([lines[0], line, *lines[2:]]))
        words = ["check_golden.py", f"{tmp_path}/golden", "--data", f"{tmp_path}/data"]
        monkeypatch.setattr(sys, "argv", words)
        assert check_golden.main() == code
        assert f"3 rows compared, {counts}" in capsys.readouterr().out
    for verdict, code, counts in (("VULNERABLE", 0, "0 differ, 1 ties"), ("FRAGILE", 1, "1 differ, 0 ties")):
        write(tmp_path, "golden/verdicts/v.tsv", "\n".join([*lines[:3], f"2\tc\tbb,c\t{verdict}"]))
        assert check_golden.main() == code
        assert f"3 rows compared, {counts}" in capsys.readouterr().out
