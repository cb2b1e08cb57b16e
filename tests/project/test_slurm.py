"""The job-array script on a real SLURM, where there is one, and what it does on the login node anywhere."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from support.command import run
from support.reports import without_times
from support.slurm import SBATCH, SETTINGS, TRAIN_OPTIONS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/slurm/forest.sh"
ARGUMENTS = ["builtin:iris/train", "builtin:iris/test"]


def submit(folder: Path, **settings: str) -> subprocess.CompletedProcess:
    line = [SCRIPT, *ARGUMENTS, folder, "0.1"]
    return subprocess.run(line, env={**os.environ, **SETTINGS, **settings}, capture_output=True, text=True)


def check_result(folder: Path) -> None:
    """What the jobs made is what one machine makes."""
    run("train", ARGUMENTS[0], folder / "here.silva", "--epsilon", "0.1", "--trees", "3", *TRAIN_OPTIONS.split())
    assert (folder / "forest.silva").read_bytes() == (folder / "here.silva").read_bytes()
    run("verify", folder / "forest.silva", ARGUMENTS[1], "--epsilon", "0.1", "-o", folder / "here.jsonl")
    found, expected = ((folder / name).read_text() for name in ("verdicts.jsonl", "here.jsonl"))
    assert without_times(found, "jsonl") == without_times(expected, "jsonl")
    assert not list(folder.glob("parts/*.unfinished"))


def has_slurm() -> bool:
    if shutil.which("sbatch") is None:
        return False
    try:
        return subprocess.run(["sinfo"], capture_output=True, timeout=30).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.skipif(not has_slurm(), reason="no SLURM here (sbatch, sinfo)")
def test_a_forest_by_real_job_arrays(tmp_path: Path) -> None:
    found = submit(tmp_path, LAST_OPTIONS="--wait")
    logs = "".join(path.read_text() for path in sorted(tmp_path.glob("log/*")))
    assert found.returncode == 0, found.stderr + logs
    check_result(tmp_path)


class TestWithoutSlurm:
    """`sbatch` and `srun` that run a job at once, one task of an array after the other."""

    @pytest.fixture(autouse=True)
    def _stand_ins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in {"sbatch": SBATCH, "srun": '#!/bin/sh\nexec "$@"\n'}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("CALLS", str(tmp_path / "calls"))

    def calls(self, tmp_path: Path) -> list[str]:
        found = (tmp_path / "calls").read_text().splitlines()
        (tmp_path / "calls").unlink()
        return found

    @pytest.mark.slow
    def test_stages_in_order_and_only_what_is_missing(self, tmp_path: Path) -> None:
        folder = tmp_path / "results"
        assert submit(folder).returncode == 0
        check_result(folder)
        train, assemble, verify, merge = self.calls(tmp_path)
        assert "--array=1,2 " in train
        assert "--dependency" not in train
        assert "--dependency=afterok:1 " in assemble
        assert "--dependency=afterok:2 " in verify
        assert "--array=1,2 " in verify
        assert "--dependency=afterok:3 " in merge

        (folder / "parts/verdicts-00002.jsonl").unlink()
        before = (folder / "parts/trees-00001.silva").stat().st_mtime_ns
        assert submit(folder).returncode == 0
        verify, merge = self.calls(tmp_path)
        assert "--array=2 " in verify
        assert (folder / "parts/trees-00001.silva").stat().st_mtime_ns == before
        check_result(folder)

        (folder / "parts/trees-00001.silva").unlink()
        assert submit(folder).returncode == 0
        train, assemble, verify, merge = self.calls(tmp_path)
        assert "--array=1 " in train
        assert "--array=1,2 " in verify
        check_result(folder)

    def test_a_requeued_job_goes_on(self, tmp_path: Path) -> None:
        folder = tmp_path / "results"
        (folder / "parts").mkdir(parents=True)
        part = folder / "parts/trees-00002.silva"
        words = ["--epsilon", "0.1", "--trees", "3", *TRAIN_OPTIONS.split(), "--shard", "2/2"]
        run("train", ARGUMENTS[0], tmp_path / "x.silva", *words, "--checkpoint", f"{part}.checkpoint")
        assert submit(folder).returncode == 0
        check_result(folder)
        parts = [f"trees-0000{number}.silva{end}" for number in (1, 2) for end in ("", ".manifest.json")]
        assert sorted(path.name for path in folder.glob("parts/trees*")) == parts
        assert json.loads((folder / "parts" / parts[3]).read_text())["starts"] == 2

    def test_a_part_gets_its_name_only_if_its_job_succeeds(self, tmp_path: Path) -> None:
        folder = tmp_path / "results"
        assert submit(folder, TRAIN_OPTIONS="--preset nonsense").returncode != 0
        assert not list(folder.glob("parts/*"))
        assert len(self.calls(tmp_path)) == 1

    def test_settings_reach_the_jobs(self, tmp_path: Path) -> None:
        found = submit(tmp_path / "results", SBATCH_OPTIONS="--partition=long --account=me", MEMORY="3G", CPUS="2")
        assert found.returncode == 0
        for call in self.calls(tmp_path):
            assert "--partition=long --account=me " in call
            assert "--mem=3G " in call
            assert "--cpus-per-task=2 " in call
            assert "--requeue " in call

    def test_usage(self, tmp_path: Path) -> None:
        found = subprocess.run([SCRIPT, "a"], capture_output=True, text=True)
        assert found.returncode == 2
        assert "scripts/slurm/forest.sh TRAINING_SET TEST_SET FOLDER EPSILON" in found.stderr
