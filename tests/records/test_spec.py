"""Specs: what is read, what is refused, and what the digest names."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dpbench.errors import SpecError
from dpbench.records.protocol import Component
from dpbench.records.spec import Spec, make_spec
from dpbench.support.untrusted import read_toml


def spec(**values: Any) -> Spec:
    return make_spec({"learner": "pillar", **values}, "the test")


def test_a_name_alone_has_no_options() -> None:
    assert spec(learner="pillar").learner == Component(name="pillar")


def test_options_follow_the_name_as_pairs() -> None:
    assert spec(learner="pillar: k = 40 ,center=false").learner.options == {"k": "40", "center": "false"}


def test_a_value_may_hold_an_equals_sign() -> None:
    assert spec(dataset="files:path=a=b").dataset.options == {"path": "a=b"}


def test_a_component_may_be_a_table() -> None:
    assert spec(learner={"name": "pillar", "options": {"k": 40}}).learner.options == {"k": 40}


def test_a_component_reads_back_from_its_text() -> None:
    component = Component(name="pillar", options={"k": "40", "center": "false"})
    assert Component.parse(str(component)) == component


@pytest.mark.parametrize("text", ["pillar:=3", "pillar:k=1,centre"])
def test_an_option_that_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"Expected key=value after 'pillar'"):
        spec(learner=text)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "an option given twice": (
        lambda: Component.parse("pillar:k=1,k=2"),
        r"^Expected option 'k' of 'pillar' once, got it twice in 'pillar:k=1,k=2'",
    ),
    "an unknown key and the nearest": (
        lambda: spec(epsilom=1),
        r"Unknown key 'epsilom' of the test\. Did you mean 'epsilon'\?.*delta",
    ),
    "a misspelt key before a missing one": (
        lambda: make_spec({"learnr": "pillar"}, "the test"),
        r"Unknown key 'learnr'.*mean 'learner'",
    ),
    "an unknown key of a component": (
        lambda: spec(learner={"name": "pillar", "option": {}}),
        r"Unknown key 'option' of learner in the test. Did you mean 'options'",
    ),
    "a missing learner": (lambda: make_spec({}, "the test"), r"Expected 'learner' in the test"),
    "two sources of public data": (lambda: spec(public_dataset="digits", public_fraction=0.1), "not from both"),
    "an unknown metric": (lambda: spec(metric="nll"), "metric='nll'"),
    "a missing TOML file": (lambda: read_toml(Path() / "absent.toml", "spec"), r"Cannot read the spec .*absent\.toml"),
}


@pytest.mark.parametrize(("refused", "said"), REFUSED.values(), ids=REFUSED)
def test_what_a_spec_cannot_hold_is_refused_and_named(refused: Callable[[], object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        refused()


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, -math.inf, "nan", "much"])
def test_an_epsilon_that_guarantees_nothing_is_refused(epsilon: object) -> None:
    with pytest.raises(SpecError, match=r"epsilon=.* in the test does not fit"):
        spec(epsilon=epsilon)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta", 0),
        ("delta", 1),
        ("delta", math.nan),
        ("accountant", "gdp"),
        ("adjacency", "replace-one"),
        ("public_fraction", 1),
        ("public_fraction", -0.1),
        ("train_fraction", 0),
        ("train_fraction", 1.1),
        ("imbalance", 1),
        ("imbalance", math.inf),
        ("split_seed", -1),
        ("seeds", [0, -1]),
        ("seeds", [0.5]),
        ("secure_rng", "perhaps"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(SpecError, match=rf"^{key}\b.* in the test does not fit"):
        spec(**{key: value})


def test_epsilon_may_be_infinite() -> None:
    assert spec(epsilon=math.inf) == spec(epsilon="inf")


def test_infinite_epsilon_survives_json() -> None:
    infinite = spec(epsilon=math.inf)
    assert Spec.model_validate_json(infinite.model_dump_json()) == infinite


def test_a_number_of_seeds_means_the_first_ones() -> None:
    assert spec(seeds=5).seeds == (0, 1, 2, 3, 4)


def test_seeds_may_be_listed() -> None:
    assert spec(seeds=[7, 3]).seeds == (7, 3)


@pytest.mark.parametrize("seeds", [0, -2, [], [1, 1]])
def test_no_seed_or_a_seed_given_twice_is_refused(seeds: object) -> None:
    with pytest.raises(SpecError, match="at least one"):
        spec(seeds=seeds)


def test_a_public_dataset_takes_the_place_of_the_public_fraction() -> None:
    assert spec(public_dataset="digits").public_fraction == 0


def test_a_spec_with_a_public_dataset_survives_json() -> None:
    other = spec(public_dataset="digits")
    assert Spec.model_validate_json(other.model_dump_json()) == other


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "cifar10"},
        {"extractor": "pixels:size=8"},
        {"learner": "dp-sgd"},
        {"learner": "pillar:k=41"},
        {"epsilon": 1.0000000001},
        {"epsilon": math.inf},
        {"delta": 1.1e-5},
        {"accountant": "rdp"},
        {"public_fraction": 0.2},
        {"public_dataset": "digits"},
        {"public_labels": True},
        {"train_fraction": 0.5},
        {"imbalance": 20},
        {"split_seed": 1},
        {"seeds": [4, 3, 2, 1, 0]},
        {"secure_rng": True},
        {"search": {}},
        {"allow_overlap": True},
        {"unit": "patient"},
        {"metric": "balanced_accuracy"},
    ],
)
def test_the_digest_changes_with_every_field(change: dict[str, object]) -> None:
    assert spec(**change).digest != spec().digest


def test_every_field_but_the_one_adjacency_there_is_can_change_the_digest() -> None:
    cases = test_the_digest_changes_with_every_field.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {key for case in cases for key in case} == set(Spec.model_fields) - {"adjacency"}


def test_a_spec_that_aims_for_accuracy_is_written_and_named_as_before_there_was_a_metric() -> None:
    assert "metric" not in spec().model_dump_json()
    assert spec(metric="accuracy").digest == spec().digest


def test_what_is_not_unbalanced_is_written_and_named_as_before_there_was_imbalance() -> None:
    assert "imbalance" not in spec().model_dump_json()
    assert spec(learner="dp-sgd", unit="image").digest.startswith("04ff923ec5550fd6")


def test_the_digest_ignores_the_order_of_keys() -> None:
    first = spec(learner={"name": "pillar", "options": {"k": 1, "steps": 2}}, epsilon=2, delta=1e-6)
    second = spec(delta=1e-6, epsilon=2, learner={"options": {"steps": 2, "k": 1}, "name": "pillar"})
    assert first.digest == second.digest


def test_the_digest_survives_json() -> None:
    given = spec(epsilon=0.1 + 0.2, learner="pillar:k=3")
    assert Spec.model_validate_json(given.model_dump_json()).digest == given.digest


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec().epsilon = 100.0


def test_toml_gives_the_same_spec_as_flags(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('learner = "pillar:k=40"\nepsilon = inf\nseeds = 3\n[dataset]\nname = "digits"\n')
    given = make_spec(read_toml(file, "spec"), str(file))
    assert given == spec(learner="pillar:k=40", epsilon="inf", seeds=3, dataset="digits")


@pytest.mark.parametrize("content", [b"epsilon = ", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "spec.toml"
    file.write_bytes(content)
    with pytest.raises(SpecError, match=r"Cannot read the spec .*spec\.toml"):
        read_toml(file, "spec")
