"""What the scripts take, asked of their own parsers without running them."""

from __future__ import annotations

import argparse
import runpy
from functools import cache

import pytest

from support.documented import ROOT

SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.glob("scripts/**/*.py"))
    if "ArgumentParser(" in path.read_text(encoding="utf-8")
]


class AboutToParse(Exception):
    """Thrown when a script is going to look at its arguments."""


@cache
def parser_of(script: str) -> argparse.ArgumentParser:
    """The parser that a script makes."""

    def stop(parser: argparse.ArgumentParser, *arguments: object) -> None:
        raise AboutToParse(parser)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.syspath_prepend((ROOT / script).parent)
        with pytest.raises(AboutToParse) as caught:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    parser = caught.value.args[0]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def options_of_script(script: str) -> set[str]:
    return set(parser_of(script)._option_string_actions)
