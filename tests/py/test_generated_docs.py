"""The generated parts of the documentation are current: configuration keys and synopses."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_docs import COMMANDS, CONFIGURATION, SYNOPSIS, commands, configuration, synopsis

REMEDY = "run `make generated-docs`"


def test_configuration_md_is_made_from_the_shipped_files() -> None:
    assert CONFIGURATION.read_text() == configuration(), f"config/*.toml changed: {REMEDY}"


@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: page.name)
def test_synopses_match_the_help(page: Path) -> None:
    assert SYNOPSIS.search(page.read_text()), "the synopses were not found"
    assert page.read_text() == commands(page), f"--help changed: {REMEDY}"


def test_a_synopsis_names_each_option_once() -> None:
    text = (
        "End a stream\n\nUsage: batchweave seal [OPTIONS] --reason <TEXT> <NAME>\n\nOptions:\n"
        "      --reason <TEXT>  Why\n  -f, --force      Even so; see --help\n"
        "      --at <VERSION>\n          Long\n  -h, --help       Print help\n\n"
        "Global options:\n      --json  As JSON\n"
    )
    expected = "batchweave seal --reason <TEXT> <NAME> [--force] [--at <VERSION>]"
    assert synopsis(text) == expected
