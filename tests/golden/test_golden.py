"""What a user reads at a shell stays as the golden files have it, until they are written again on purpose."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.golden import help_texts, transcript

PINNED = Path(__file__).parents[2] / ".ci" / "constraints.txt"


@pytest.mark.lab
@pytest.mark.skipif(
    f"typer=={version('typer')}" not in PINNED.read_text(encoding="utf-8").split(),
    reason="another version of typer draws help texts in another way",
)
def test_the_help_text_of_every_command_is_as_its_golden_file() -> None:
    kept = {file.stem: file.read_text(encoding="utf-8") for file in help_texts.FOLDER.glob("*.txt")}
    shown = help_texts.help_texts()
    assert sorted(shown) == sorted(kept)
    for name, text in shown.items():
        assert text == kept[name], f"--help of {name} has changed; if it is meant: python -m tests.golden"


@pytest.mark.lab
def test_what_is_refused_is_refused_in_the_words_of_the_golden_file(tmp_path: Path) -> None:
    assert transcript.refusals(tmp_path) == transcript.REFUSALS.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_that_tunings_print_are_those_of_the_golden_file(tmp_path: Path) -> None:
    assert transcript.commands(tmp_path) == transcript.COMMANDS.read_text(encoding="utf-8")
