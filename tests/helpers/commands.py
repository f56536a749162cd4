"""The command line, called in this process; and the message with which a call or a command is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpbench.errors import DpbenchError

Output = pytest.CaptureFixture[str]


def call(*arguments: object) -> int:
    """Run `dpbench` with these arguments; return its exit code. `capsys` has what it writes."""
    from dpbench.main import main

    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return int(ended.value.code or 0)


class Refusal:
    """Calls what must be refused, and returns the message."""

    def __init__(self, capsys: Output) -> None:
        self._capsys = capsys

    def __call__(self, refused: Callable[[], object], error: type[BaseException] = DpbenchError) -> str:
        """Return the message of the error that a call raises."""
        with pytest.raises(error) as raised:
            refused()
        return str(raised.value)

    def command(self, *arguments: object) -> str:
        """Return the one line with which a command ends; it prints nothing else."""
        self._capsys.readouterr()
        assert call(*arguments) == 1
        said = self._capsys.readouterr()
        assert said.out == "" and said.err.startswith("dpbench: ") and said.err.count("\n") == 1
        return said.err
