"""Commands that dpbench refuses and commands that it prints, each with what a terminal shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpbench import cli

REFUSALS = Path(__file__).parent / "refusals.txt"
COMMANDS = Path(__file__).parent / "commands.txt"
JL = 'learner = "jl"\nextractor = "auto"\n'
"""What files begin with: one that names no extractor gets a warning first."""
INSTALLED = re.compile(r"(Unknown (?:learner|dataset|board|ready-made sweep) .*Available: ).*")


@dataclass(frozen=True)
class Call:
    """One command, with the files that it reads."""

    words: str
    files: Mapping[str, str] = field(default_factory=dict)


def _file(command: str, content: str) -> Call:
    return Call(command, {"spec.toml": content})


REFUSED = (
    # flags
    Call("run"),
    Call("run pillar"),
    Call("run --lerner jl"),
    Call("run --learner pilar"),
    Call("run --learner pillar,"),
    Call("run --learner pillar:k=0"),
    Call("run --learner pillar:depth=3"),
    Call("run --learner pillar:k=1,k=2"),
    Call("run --learner jl --dataset nowhere"),
    Call("run --learner jl --extractor concat"),
    Call("run --learner jl --extractor pixels+"),
    Call("run --learner jl --epsilon 0"),
    Call("run --learner jl --epsilon 1e-5"),
    Call("run --learner jl --epsilon nan"),
    Call("run --learner jl --epsilon one"),
    Call("run --learner jl --epsilon 0,5"),
    Call("run --learner jl --epsilon 0.1,-1"),
    Call("run --learner jl --epsilon 1 --epsilon 1.0"),
    Call("run --learner jl --delta 2"),
    Call("run --learner jl --delta 1e-300"),
    Call("run --learner jl --delta small"),
    Call("run --learner jl --delta 1e-5 --delta 1e-6"),
    Call("run --learner jl --accountant gdp"),
    Call("run --learner jl --public-fraction 1"),
    Call("run --learner jl --public-fraction much"),
    Call("run --learner jl --public-fraction 0,1"),
    Call("run --learner jl --public-dataset digits --public-fraction 0.1"),
    Call("run --learner jl --train-fraction 0"),
    Call("run --learner jl --train-fraction 0.5,2"),
    Call("run --learner jl --imbalance 1"),
    Call("run --learner jl --imbalance 1e9"),
    Call("run --learner jl --unit Patient"),
    Call("run --learner jl --unit patient"),
    Call("run --learner jl --metric precision"),
    Call("run --learner jl --split-seed -1"),
    Call("run --learner jl --split-seed 0.5"),
    Call("run --learner jl --seeds 0"),
    Call("run --learner jl --seeds 1e9"),
    Call("run --learner jl --seeds 1000000000"),
    Call("run --learner jl --threads 0"),
    Call("run --learner jl --device tpu"),
    Call("run --learner jl --settings nowhere.json"),
    Call("run --learner jl,pillar --json"),
    Call("run --learner jl --epsilon 1,2 --models"),
    Call("run --learner jl --json --risk"),
    # search
    Call("run --learner jl --tune --selection public-validation"),
    Call("run --learner jl --selection best"),
    Call("run --learner jl --selection transfer"),
    Call("run --learner jl --selection oracle"),
    Call("run --learner jl --tries 3"),
    Call("run --learner jl --space k=3 --search-seed 1"),
    Call("run --learner jl --selection default --tries 3"),
    Call("run --learner jl --selection private-accounted --tries 3"),
    Call("run --learner jl --selection public-validation --repeats 3"),
    Call("run --learner jl --selection private-accounted --repeats 0.5"),
    Call("run --learner jl --tune --tries 0"),
    Call("run --learner jl --tune --search-seed -1"),
    Call("run --learner jl --tune --space k"),
    Call("run --learner jl --tune --space own --space k=3"),
    Call("run --learner jl --tune --space depth=3"),
    Call("run --learner jl:k=3 --tune --space k=3,4"),
    # boards
    Call("run --learner jl --board nowhere"),
    Call("run --learner jl --board digits-eps1 --epsilon 1"),
    Call("run --learner jl --board digits-eps1 --delta 1e-5 --seeds 3"),
    Call("run --learner jl --board digits-eps1 --allow-overlap"),
    Call("run --learner jl,gep --board digits-eps1 --epsilon 1,2"),
    Call("run --learner jl --board digits-eps1 --selection private-unaccounted"),
    Call("run --learner jl --board digits-eps1 --selection private-accounted"),
    # files
    Call("run --spec nowhere.toml"),
    _file("run --spec spec.toml --learner jl", 'adjacency = "replace-one"\n'),
    _file("run --spec spec.toml", "learner ="),
    _file("run --spec spec.toml", JL + "epsilom = 1"),
    _file("run --spec spec.toml --epsilon 0", 'learner = "jl"'),
    _file("run --spec spec.toml", JL + 'epsilon = -1'),
    _file("run --spec spec.toml --epsilon 0", JL + 'epsilon = 1'),
    _file("run --spec spec.toml", JL + 'epsilon = "one"'),
    _file("run --spec spec.toml", JL + 'epsilon = [1, 1.0]'),
    _file("run --spec spec.toml", JL + 'epsilon = true'),
    _file("run --spec spec.toml", JL + 'public_fraction = [0.1, 0.2]'),
    _file("run --spec spec.toml", JL + 'seeds = 0'),
    _file("run --spec spec.toml", JL + 'seeds = "five"'),
    _file("run --spec spec.toml", JL + 'delta = "small"'),
    _file("run --spec spec.toml", JL + 'public_labels = "yes please"'),
    _file("run --spec spec.toml", "learner = 3"),
    _file("run --spec spec.toml", 'learner = {name = "jl", option = {}}'),
    _file("run --spec spec.toml", "epsilon = 1"),
    _file("run --spec spec.toml", JL + 'device = 1'),
    _file("run --spec spec.toml", JL + 'threads = "all"'),
    _file("run --spec spec.toml", JL + 'threads = 0'),
    _file("run --spec spec.toml", JL + 'out = 3'),
    _file("run --spec spec.toml", JL + 'tune = "yes"'),
    _file("run --spec spec.toml", JL + 'tune = true\nselection = "public-validation"'),
    _file("run --spec spec.toml", JL + 'selection = "best"'),
    _file("run --spec spec.toml", JL + 'tries = 3'),
    _file("run --spec spec.toml", JL + 'search = 3'),
    _file("run --spec spec.toml", JL + '[search]\nrule = "best"'),
    _file("run --spec spec.toml", JL + '[search]\nfold = 3'),
    _file("run --spec spec.toml", JL + '[search]\nfolds = 1'),
    _file("run --spec spec.toml", JL + '[search]\nrepeats = 3'),
    _file("run --spec spec.toml", JL + 'board = "nowhere"'),
    _file("run --spec spec.toml", JL + 'board = "digits-eps1"\nepsilon = 1'),
    _file("run --spec spec.toml", 'name = "a"\n[grid]\nlearner = ["jl", "gep"]'),
    _file("sweep spec.toml", JL + 'epsilon = 1'),
    _file("sweep spec.toml", 'name = "a"\n[fixed]\nlearner = "jl"\nextractor = "pixels"\n[grid]\nepsilom = [1]'),
    _file("sweep spec.toml", 'name = "a"\n[fixed]\nlearner = "jl"\nextractor = "pixels"\n[grid]\nepsilon = [0]'),
    _file("sweep spec.toml", 'name = "a"\n[fixed]\nlearner = "jl"\nextractor = "pixels"\n[grid]\nepsilon = 1'),
    # other commands
    Call("tune"),
    Call("tune --learner jl --selection default"),
    Call("tune --learner jl --selection private-accounted --tries 3"),
    Call("tune --learner jl --epsilon 0"),
    Call("tune --learner jl --epsilon 1,2"),
    Call("tune --learner jl --seeds 3"),
    _file("tune --spec spec.toml", JL + 'board = "digits-eps1"'),
    _file("tune --spec spec.toml", JL + "repeats = 3"),
    _file("tune --spec spec.toml", JL + "threads = 3"),
    _file("tune --spec spec.toml", JL + "epsilon = 0"),
    _file("tune --spec spec.toml", JL + "epsilon = [1, 2]"),
    Call("explain"),
    Call("explain --learner jl --epsilon 0"),
    Call("explain --learner jl --tries 3"),
    Call("explain --learner jl --board digits-eps1 --epsilon 1"),
    Call("explain --learner jl --seeds 0"),
    Call("inspect --dataset nowhere"),
    Call("inspect --public-fraction 1"),
    Call("inspect --public-fraction 0"),
    Call("inspect --split-seed -1"),
    Call("advise nowhere --epsilon 0"),
    Call("advise nowhere --delta 2"),
    Call("advise nowhere --public-fraction 1"),
    Call("advise nowhere --split-seed -1"),
    Call("advise nowhere"),
    Call("audit nowhere.json --device tpu"),
    Call("sweep nowhere.toml --workers 0"),
)  # fmt: skip

TUNE = "tune --learner class-means --space k=3 --public-labels"
PRINTED = (
    Call(f"{TUNE} --extractor pixels:mode=L"),
    Call(f"{TUNE} --epsilon inf --delta 1e-6 --accountant rdp --public-fraction 0.3 --train-fraction 0.5"),
    Call(
        f"{TUNE} --dataset theory-gmm:n=400 --public-dataset theory-gmm:n=300,seed=1 --metric balanced_accuracy "
        "--split-seed 3 --allow-overlap"
    ),
    Call(f"{TUNE} --imbalance 4 --unit image"),
    _file(
        "tune --spec spec.toml", 'learner = "class-means"\nextractor = "auto"\npublic_labels = true\nspace = {k = [3]}'
    ),
)
"""Tunings, each of which prints the run that uses what it found."""


def refusals(folder: Path) -> str:
    """Return what each refused command says, with its files; `folder`, an empty one, is the current folder of all."""
    with _within(folder):
        return "\n".join(map(_refusal, REFUSED))


def commands(folder: Path) -> str:
    """Return the commands that tunings print; `folder`, an empty one, is the current folder of all."""
    with _within(folder):
        return "\n".join(map(_printed, PRINTED))


def _refusal(call: Call) -> str:
    code, _, said = _called(call)
    said = INSTALLED.sub(r"\1...", said)  # names of plugins and boards come and go
    return "\n".join([*_asked(call), said.rstrip("\n"), f"exit code {code}", ""])


def _printed(call: Call) -> str:
    code, shown, said = _called(call)
    assert code == 0, said
    commands = [line for line in shown.splitlines() if "dpbench " in line]
    return "\n".join([*_asked(call), *commands, ""])


def _asked(call: Call) -> Iterator[str]:
    for name, content in call.files.items():
        yield f"# {name}"
        yield from (f"# | {line}" for line in content.splitlines())
    yield f"$ dpbench {call.words}"


def _called(call: Call) -> tuple[int, str, str]:
    for name, content in call.files.items():
        Path(name).write_text(content, encoding="utf-8")
    code, shown, said = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        try:
            cli.main(shlex.split(call.words))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, shown.getvalue(), said.getvalue()


@contextlib.contextmanager
def _within(folder: Path) -> Iterator[None]:
    with contextlib.chdir(folder):
        before = os.environ.get("COLUMNS")
        os.environ["COLUMNS"] = "1000"
        try:
            yield
        finally:
            os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
