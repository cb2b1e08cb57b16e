"""Commands in the documents that no test runs: why, and what is checked of them instead."""

from __future__ import annotations

import shlex

import pytest
from support.documented import list_shown, list_whole
from support.exemptions import EXEMPT, Exemption, find_exemption

pass


SHOWN = list(dict.fromkeys(command.text for command in [*list_shown(), *list_whole()]))


@pytest.mark.parametrize("exemption", EXEMPT, ids=lambda exemption: exemption.text)
def test_an_exemption_is_for_a_command_in_the_documents_that_is_right(exemption: Exemption) -> None:
    covered = [text for text in SHOWN if find_exemption(text) == exemption]
    assert covered or exemption.may_be_absent, f"no document shows this any more: {exemption.text}"
    for text in covered:
        exemption.check(shlex.split(text))
