"""A setting of a run is one field: flags, keys, checks, messages and printed commands follow from it."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from click.testing import CliRunner
from hypothesis import given as drawn
from hypothesis import strategies as st
from pydantic import Field
from typer.testing import CliRunner as TyperRunner

import dpbench
from dpbench.cli.given import CommandSettings, UserSettings
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.main import load_root_command
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component, Protocol
from dpbench.records.search import Search
from dpbench.records.setting import FlagFacts, list_record_settings
from dpbench.records.spec import AXES, Spec, format_flags, make_spec
from dpbench.registry import load
from dpbench.registry.components import resolve


def read_flags(words: Sequence[str], *records: type[Any], several: tuple[str, ...] = AXES) -> UserSettings:
    """Return what a command that takes these records is given by flags."""
    command, found = _make_command(records or (Spec, Search, RunOptions), several)
    done = CliRunner().invoke(command, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return found.pop()


@functools.cache
def _make_command(records: tuple[type[Any], ...], several: tuple[str, ...]) -> tuple[Any, list[UserSettings]]:
    """Return a command that takes these records, and the list of what it was given."""
    found: list[UserSettings] = []

    @add_setting_flags(*records, several=several, file=True)
    def run(given: UserSettings) -> None:
        found.append(given)

    program = typer.Typer()
    program.command()(run)
    return typer.main.get_command(program), found


def parses(words: Sequence[str]) -> Spec:
    return read_flags(words).spec()


# From flags to a spec and back

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True).filter(lambda name: name not in {"concat", "auto"})
VALUES = st.one_of(st.integers(-1000, 1000), st.floats(0.001, 10), st.booleans(), NAMES).map(str)
OPTIONS = st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), VALUES, max_size=3)
COMPONENTS = st.builds(lambda name, options: Component(name=name, options=options), NAMES, OPTIONS)
JOINED = st.lists(COMPONENTS, min_size=2, max_size=3).map(lambda parts: Component(name="concat", options={"of": parts}))
SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
SEEDS = st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True)
SEARCHES = st.one_of(
    st.fixed_dictionaries(
        {"rule": st.sampled_from(["public-validation", "private-unaccounted"])},
        optional={
            "tries": st.integers(1, 999), "seed": st.integers(0, 99), "folds": st.integers(2, 20),
            "space": st.sampled_from(["own", "paper", {"q": ("1", "2"), "r": ("0.5",)}]),
        },
    ),
    st.fixed_dictionaries(
        {"rule": st.just("private-accounted")},
        optional={"repeats": st.floats(1.5, 99), "shape": st.floats(0, 10), "seed": st.integers(0, 99)},
    ),
)  # fmt: skip
KEYS = {
    "dataset": COMPONENTS, "extractor": COMPONENTS | JOINED | st.just("auto"),
    "epsilon": st.floats(1e-4, 1e4) | st.just(float("inf")), "delta": st.floats(1e-12, 0.5) | st.just("auto"),
    "accountant": st.sampled_from(["pld", "rdp", "prv"]), "public_labels": st.booleans(),
    "train_fraction": st.floats(0, 1, exclude_min=True), "imbalance": st.floats(1, 1e4, exclude_min=True),
    "unit": st.sampled_from(["image", "patient", "own"]), "metric": st.sampled_from(["accuracy", "macro_f1", "auroc"]),
    "split_seed": st.integers(0, 99), "seeds": st.integers(1, 9) | SEEDS, "secure_rng": st.booleans(),
    "allow_overlap": st.booleans(), "search": SEARCHES,
}  # fmt: skip
PUBLIC: st.SearchStrategy[dict[str, Any]] = st.one_of(st.just({}), SHARES.map(lambda share: {"public_fraction": share}),
                   COMPONENTS.map(lambda dataset: {"public_dataset": dataset}))  # fmt: skip


@drawn(st.fixed_dictionaries({"learner": COMPONENTS}, optional=KEYS), PUBLIC)
def test_flags_of_a_spec_ask_for_that_spec(keys: dict[str, Any], public: dict[str, Any]) -> None:
    spec = make_spec({**keys, **public}, "the test")
    again = parses(format_flags(spec))
    assert again == spec and again.digest == spec.digest
    for key in ("extractor", "delta"):  # what the dataset decides stays its to decide
        assert (key in again.model_fields_set) == (key in spec.model_fields_set)
    assert format_flags(again) == format_flags(spec)
    assert parses(format_flags(spec, defaults=True)) == spec


def test_the_strategy_draws_every_setting_of_a_spec() -> None:
    named = {setting.name for setting in list_record_settings(Spec)}
    assert named == {*KEYS, "learner", "public_fraction", "public_dataset"} - {"search"}


def test_flags_of_a_resolved_spec_ask_for_the_same_run() -> None:
    plugins = load()
    for keys in ({}, {"extractor": "pixels:size=4"}, {"delta": 1e-6, "search": {"space": {"k": [3, 4]}}}):
        asked = make_spec({"learner": "class-means", "dataset": "digits", **keys}, "the test")
        whole = resolve(asked, plugins).spec  # whose learner has options that are searched
        flags = format_flags(whole.model_copy(update={"learner": asked.learner}))
        assert resolve(parses(flags), plugins).spec.digest == whole.digest


def test_a_command_says_what_is_not_at_its_default_and_no_more() -> None:
    assert format_flags(make_spec({"learner": "jl"}, "the test")) == ["--learner", "jl"]
    spec = make_spec({"learner": "jl:k=3", "epsilon": 2, "public_labels": True, "seeds": [3, 7]}, "the test")
    assert shlex.join(format_flags(spec)) == "--learner jl:k=3 --epsilon 2 --public-labels --seeds 3,7"


# One field more


class Warm(Spec):
    """A spec with one setting more."""

    warmth: Annotated[float, FlagFacts(several="0.1,0.5")] = Field(
        0.25, gt=0, le=1, title="Warmth", description="Share of steps that warm up"
    )


def test_a_field_more_is_a_flag_a_key_a_check_and_a_word_of_printed_commands(tmp_path: Path) -> None:
    records, file = (Warm, Search, RunOptions), tmp_path / "spec.toml"
    found = read_flags(["--learner", "jl", "--warmth", "0.5"], *records).spec()
    assert isinstance(found, Warm) and found.warmth == 0.5
    assert format_flags(found) == ["--learner", "jl", "--warmth", "0.5"]
    file.write_text('learner = "jl"\nextractor = "auto"\nwarmth = 0.75', encoding="utf-8")
    assert format_flags(read_flags(["--spec", str(file)], *records).spec())[-2:] == ["--warmth", "0.75"]
    with pytest.raises(SpecError, match=r"^warmth=2.0 in the flags of dpbench run does not fit: expected a value less"):
        read_flags(["--learner", "jl", "--warmth", "2"], *records).spec()
    file.write_text('learner = "jl"\nextractor = "auto"\nwarmth = 0', encoding="utf-8")
    with pytest.raises(SpecError, match=rf"^warmth=0 in {file} does not fit: expected a value greater than 0"):
        read_flags(["--spec", str(file)], *records).spec()
    several = read_flags(["--learner", "jl", "--warmth", "0.1,0.5"], *records, several=("warmth",))
    assert several.axes == {"warmth": [0.1, 0.5]}


def test_a_field_more_is_in_the_help_with_its_default() -> None:
    program = typer.Typer()

    @add_setting_flags(Warm)
    def run(given: UserSettings) -> None:
        """Run."""

    program.command()(run)
    done = TyperRunner().invoke(program, ["--help"], env={"COLUMNS": "300", "NO_COLOR": "1"})
    shown = " ".join(done.output.split())
    assert "--warmth" in shown and "Share of steps that warm up. [default: 0.25]" in shown


# Who said it


@pytest.mark.parametrize(
    ("flags", "content", "said"),
    [
        ({"epsilon": ["0"]}, "", "epsilon=0.0 in the flags of dpbench run"),
        ({}, "epsilon = 0", "epsilon=0 in {file}"),
        ({"epsilon": ["0"]}, "epsilon = 1", "epsilon=0.0 in the flags of dpbench run"),
        ({"delta": "2"}, "epsilon = 1", "delta='2' in the flags of dpbench run"),
        ({"tries": 0}, "selection = 'public-validation'", "tries=0 in the flags of dpbench run"),
        ({}, "tune = true\ntries = 0", "tries=0 in {file}"),
        ({}, "threads = 0", "threads=0 in {file}"),
        (
            {"public_fraction": 0.1},
            "public_dataset = 'digits'",
            "Expected values that fit together in {file} and flags",
        ),
    ],
)
def test_messages_name_who_gave_a_value(flags: dict[str, Any], content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(f'learner = "jl"\nextractor = "auto"\n{content}', encoding="utf-8")
    given = UserSettings("run", CommandSettings((Spec, Search, RunOptions), several=AXES), flags, file)
    with pytest.raises(SpecError) as caught:
        _ = given.spec(), given.place
    assert str(caught.value).startswith(said.format(file=file))


def test_flags_go_before_a_file_and_both_before_the_defaults_of_a_command(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('learner = "jl"\nextractor = "auto"\nepsilon = 2\ntries = 7', encoding="utf-8")
    taken = CommandSettings((Spec, Search, RunOptions), defaults={"selection": "public-validation", "tries": 9})
    read, over = (UserSettings("run", taken, flags, file).spec() for flags in ({}, {"epsilon": 4.0, "tries": 8}))
    assert (read.epsilon, over.epsilon) == (2, 4)
    assert read.search is not None and over.search is not None and (read.search.tries, over.search.tries) == (7, 8)


def test_a_command_of_one_setting_has_that_flag_alone() -> None:
    commands = load_root_command()
    flags = {flag for parameter in commands.commands["predict"].params for flag in parameter.opts}
    assert {flag for flag in flags if flag.startswith("--")} - {"--help"} == {"--device", "--json"}


# The same settings in Python


def test_the_signature_of_run_in_python_has_the_settings_of_the_records_with_their_defaults() -> None:
    parameters = inspect.signature(dpbench.run).parameters
    beside = {"board", "settings", "threads"}  # of a shell: Python has entries checked later and sets its own threads
    known = {setting.name: setting.field for record in (Spec, RunOptions) for setting in list_record_settings(record)}
    assert {*parameters} - {"search", "keep_models"} == known.keys() - beside
    for name, parameter in parameters.items():
        if name in known and parameter.default not in {None, inspect.Parameter.empty}:
            told = Component(name=parameter.default) if name == "dataset" else parameter.default
            default = known[name].default
            assert told == (len(default) if name == "seeds" else default) or Path(str(told)) == default, name


def test_the_docstring_of_run_in_python_tells_every_parameter() -> None:
    told = inspect.getdoc(dpbench.run) or ""
    for name in inspect.signature(dpbench.run).parameters:
        assert f"\n    {name}: " in told, name


@pytest.mark.parametrize("record", [Protocol, Spec, Search, RunOptions])
def test_every_setting_has_a_sentence_and_no_two_of_a_run_have_one_key(record: type[Any]) -> None:
    keys = [setting.key for kind in (Spec, Search, RunOptions) for setting in list_record_settings(kind)]
    assert len(keys) == len({*keys})
    silent = {name for name, field in record.model_fields.items() if not field.description}
    assert silent <= {"adjacency", "search"}  # which has one value, and which is a table of settings
