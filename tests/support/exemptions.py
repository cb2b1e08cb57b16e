"""Documented commands that no test runs, with the reasons."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from typing import NamedTuple

import click
import pytest

from metasilvae.cli import main
from support.documented import DOCUMENTS, ROOT, read_document
from support.script_parsers import parser_of
from support.sessions import find_sessions


def check_make(words: list[str]) -> None:
    """Make knows what it would have to do."""
    subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)


def check_pip(words: list[str]) -> None:
    """The extras exist."""
    assert words[1] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[2:]:
        name, _, named = word.rstrip("]").partition("[")
        assert name in ("metasilvae", ".", "./metasilvae")
        assert set(filter(None, named.split(","))) <= set(extras), word


def check_dask(words: list[str]) -> None:
    """Dask takes these options."""
    pytest.importorskip("distributed", reason="needs dask[distributed]")
    from distributed.cli import dask_scheduler, dask_worker

    program = {"scheduler": dask_scheduler, "worker": dask_worker}
    kind, *options = [word for word in words if word not in ("srun", "dask", "&")]
    program[kind].main.make_context(kind, options)


def check_script(words: list[str]) -> None:
    """The script takes these options."""
    parser_of(words[0]).parse_args(words[1:])


def check_train(words: list[str]) -> None:
    """The command takes these options."""
    context = click.Context(main, info_name="metasilvae", **main.context_settings)
    command = main.get_command(context, words[1])
    assert command is not None
    command.make_context(words[1], words[2:], parent=context)


def check_paper(words: list[str]) -> None:
    """The script takes these options, and knows these experiments and data sets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        importlib.import_module("paper").parse_arguments(words[2:])


def check_session(words: list[str]) -> None:
    """A session of a document runs it, and a test that session."""
    sessions = [command for document in DOCUMENTS for command, _ in find_sessions(read_document(document))]
    assert shlex.join(words) in sessions


def check_syntax(words: list[str]) -> None:
    """The script is there, and bash can read it."""
    subprocess.run(["bash", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)


def check_completion(words: list[str]) -> None:
    """Our part of it prints a script for that shell."""
    [variable] = [word for text in words for word in text.strip("$()").split() if word.startswith("_METASILVAE")]
    name, _, value = variable.partition("=")
    line = [sys.executable, "-c", "import metasilvae.cli as cli; cli.main(prog_name='metasilvae')"]
    found = subprocess.run(line, env={**os.environ, name: value}, check=True, capture_output=True, text=True)
    assert "metasilvae" in found.stdout


def check_message(words: list[str]) -> None:
    """The program says so."""
    text = " ".join(words)
    assert any(text in path.read_text() for path in (ROOT / "metasilvae").rglob("*.py"))


def check_nothing(words: list[str]) -> None:
    """It is another program's command."""


class Exemption(NamedTuple):
    """A command that is not run; one that ends in ``...`` begins like this.

    Attributes
    ----------
    may_be_absent : bool
        Whether a page that a script writes shows it at times only.
    """

    text: str
    check: Callable[[list[str]], None]
    reason: str
    may_be_absent: bool = False

    def covers(self, text: str) -> bool:
        return text == self.text or (self.text.endswith("...") and text.startswith(self.text[:-3]))


EXEMPT = [
    Exemption("metasilvae train cache:mnist/train ...", check_train, "takes long, and a download"),
    Exemption("make build", check_make, "makes an environment"),
    Exemption("make demo", check_make, "makes an environment; `test_the_demo_runs` runs its script"),
    Exemption("make test", check_make, "makes an environment, and runs this test"),
    Exemption("make test-all", check_make, "makes an environment, and runs this test"),
    Exemption("make lint", check_make, "makes an environment"),
    Exemption("make coverage-python", check_make, "runs the tests, this one among them"),
    Exemption("make coverage", check_make, "compiles, makes an environment, and takes minutes"),
    Exemption("make coverage-kernels ...", check_make, "compiles, makes an environment, and takes minutes"),
    Exemption("make test-debug", check_make, "compiles, makes an environment, and takes minutes"),
    Exemption("make test-asan", check_make, "compiles, makes an environment, and takes hours"),
    Exemption("make fuzz", check_make, "takes minutes; `test_fuzz.py` does the same with fewer files"),
    Exemption("make bench", check_make, "measures for minutes"),
    Exemption("make bench SILVA=path/to/silva", check_make, "needs another program"),
    Exemption("make paper", check_make, "takes hours; `test_paper.py` runs it on small data"),
    Exemption("make pictures ...", check_make, "trains for minutes; `test_scripts.py` runs its script on small data"),
    Exemption("bash .ci/run", check_syntax, "runs all tests, this one among them"),
    Exemption("pip install ...", check_pip, "needs the network"),
    Exemption("sh check.sh", check_session, "a session of the tutorial runs it"),
    Exemption("dask scheduler ...", check_dask, "takes a fixed port; `remote_tasks.py` starts one on a free port"),
    Exemption("dask worker ...", check_dask, "has no end; `remote_tasks.py` starts workers"),
    Exemption("srun dask worker ...", check_dask, "has no end, and needs SLURM"),
    Exemption("salloc ...", check_nothing, "needs SLURM, and is none of our programs"),
    Exemption('eval "$(_METASILVAE_COMPLETE=zsh_source metasilvae)"', check_completion, "needs zsh"),
    Exemption("_METASILVAE_COMPLETE=fish_source metasilvae | source", check_completion, "needs fish"),
    Exemption("make soak MINUTES=120", check_make, "takes two hours"),
    Exemption("scripts/bench_ablation.py ...", check_script, "takes hours, and needs the data of the paper"),
    Exemption("scripts/bench_boosting.py ...", check_script, "takes minutes, and needs the data of the paper"),
    Exemption("scripts/bench_generalization.py ...", check_script, "takes hours; test_scripts.py runs a short one"),
    Exemption("scripts/bench_hard_forests.py ...", check_script, "takes minutes; test_scripts.py runs a short one"),
    Exemption("scripts/bench_norms.py ...", check_script, "takes minutes, and needs the data of the paper"),
    Exemption("scripts/bench_peers.py ...", check_script, "takes minutes, and needs the data of the paper"),
    Exemption("scripts/bench_phases.py ...", check_script, "takes minutes, and needs the data of the paper"),
    Exemption("scripts/bench_published.py ...", check_script, "fetches files; test_scripts.py runs a short one"),
    Exemption("scripts/bench_scaling.py ...", check_script, "takes minutes; test_scripts.py runs a short one"),
    Exemption("scripts/bench_sensitivity.py ...", check_script, "fetches files; test_scripts.py runs a short one"),
    Exemption("scripts/bench_train.py ...", check_script, "takes hours, and needs the data of the paper"),
    Exemption("scripts/check_veritas.py ...", check_script, "needs Veritas; test_scripts.py runs a short one"),
    Exemption("python scripts/paper.py --only ...", check_paper, "takes hours; `test_paper.py` runs it", True),
    Exemption("metasilvae is not installed on a worker", check_message, "a message"),
]


def find_exemption(text: str) -> Exemption | None:
    """What exempts a command from being run."""
    return next((exemption for exemption in EXEMPT if exemption.covers(text)), None)
