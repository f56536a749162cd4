"""Whose each example is: no cut divides a unit, and what does not fit is refused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from dpbench import DataError, Split, Splits
from dpbench.data.units import split_rows_by_unit
from dpbench.errors import SpecError
from dpbench.harness.roles import ExamplesByRole, extract_examples_by_role
from dpbench.harness.sharing import refuse_forbidden_overlap
from dpbench.harness.split_images import PUBLIC_IN_PRIVATE
from dpbench.harness.tuning.folds import Fold, make_folds
from dpbench.records.overlap import OverlapCounts, find_excess_overlap
from dpbench.records.search import Search
from tests.harness.test_roles import TRAIN, Numbered, deal, private_places, public_places, roles
from tests.helpers import gallery

pytestmark = pytest.mark.usefixtures("fresh_cache")

OWNER = np.sort(np.random.default_rng(0).integers(0, 60, TRAIN)) * 7 + 3  # of each training image; some have many


@dataclass(frozen=True)
class Owned(Numbered):
    """The numbered images, each of an owner."""

    name: ClassVar[str] = "owned"
    first_test: int = 1000  # number of the first owner of test images

    def load(self) -> Splits:
        splits = super().load()
        size = len(splits.test.labels)
        test = replace(splits.test, units=self.first_test + np.arange(size))
        return replace(splits, train=replace(splits.train, units=OWNER), test=test, unit="owner")


def owners(places: list[int]) -> set[int]:
    return set(OWNER[places].tolist())


@pytest.mark.parametrize("values", [{"public_fraction": 0.3}, {"public_fraction": 0.1, "train_fraction": 0.5}])
@pytest.mark.parametrize("seed", range(5))
def test_no_cut_divides_a_unit(seed: int, values: dict[str, Any]) -> None:
    found = roles(Owned(), split_seed=seed, **values)
    private, public = private_places(found), public_places(found)
    left = set(range(TRAIN)) - set(private) - set(public)
    parts = [owners(private), owners(public), owners(sorted(left))]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(set(OWNER.tolist()))


def test_fractions_are_those_of_units() -> None:
    found = roles(Owned(), public_fraction=0.3, train_fraction=0.5)
    count = len(set(OWNER.tolist()))
    assert len(owners(public_places(found))) == round(0.3 * count)
    assert len(owners(private_places(found))) == round(0.5 * (count - round(0.3 * count)))


def test_units_of_a_role_are_those_of_its_rows_numbered_without_a_gap() -> None:
    images = deal(Owned(), public_fraction=0.3)
    found = extract_examples_by_role(images)
    assert images.unit == "owner"
    for units, places in ((images.private_units, private_places(found)), (found.public_units, public_places(found))):
        assert units is not None and units.dtype == np.int64
        assert sorted(set(units.tolist())) == list(range(units.max() + 1))
        assert len(set(zip(units.tolist(), OWNER[places].tolist(), strict=True))) == units.max() + 1


def test_where_a_unit_goes_does_not_follow_from_how_many_examples_another_one_has() -> None:
    few, many = np.array([0, 1, 2, 3, 4, 5]), np.array([0, 1, 2, 2, 2, 2, 3, 4, 5])
    dealt = []
    for units in (few, many):
        part, _ = split_rows_by_unit(
            np.arange(len(units)), units, lambda size: (size // 3, size // 3), np.random.default_rng(4)
        )
        dealt.append(set(units[part].tolist()))
    assert dealt[0] == dealt[1]


@pytest.mark.parametrize("imbalance", [None, 4])
def test_without_units_every_role_has_the_examples_that_it_always_had(imbalance: int | None) -> None:
    images = deal(public_fraction=0.3, train_fraction=0.5, imbalance=imbalance, split_seed=11)
    found = extract_examples_by_role(images)
    said = f"{private_places(found)} {public_places(found)}"
    digests = {None: "a8ef4d9702155fa5", 4: "94dff302d608201f"}
    assert hashlib.sha256(said.encode()).hexdigest()[:16] == digests[imbalance]
    assert (images.unit, images.private_units, found.public_units) == ("", None, None)


def folds(found: ExamplesByRole, learner: Any = gallery.Honest, **values: Any) -> list[Fold]:
    return make_folds(found, learner(), Search.model_validate(values))


def test_no_fold_divides_a_unit() -> None:
    found = roles(Owned(), public_fraction=0.5, unit="owner")
    held: list[int] = []
    for fold in folds(found, folds=4):
        scored, kept = ([int(place) for place in x[:, 0]] for x in (fold.x, fold.rows.x))
        assert not owners(scored) & owners(kept)
        assert sorted(scored + kept) == sorted(public_places(found))
        assert fold.rows.units is not None
        assert len(set(zip(fold.rows.units.of.tolist(), OWNER[kept].tolist(), strict=True))) == fold.rows.count
        assert fold.weight == found.private.count / fold.rows.count
        held += scored
    assert sorted(held) == sorted(public_places(found))


def test_without_units_every_fold_has_the_examples_that_it_always_had() -> None:
    found = roles(public_fraction=0.5)
    said = [fold.x[:, 0].tolist() for fold in folds(found, folds=4, seed=3)]
    assert hashlib.sha256(str(said).encode()).hexdigest()[:16] == "5a60422940c524c8"


def test_too_few_public_units_for_the_folds_are_refused() -> None:
    with pytest.raises(SpecError, match=r"at least 10 labelled public units to choose settings with, got 4\."):
        folds(roles(Owned(), public_fraction=4 / len(set(OWNER.tolist()))), folds=5)


def test_images_of_a_unit_that_is_trained_on_are_counted_in_the_test_split_and_no_board_takes_many() -> None:
    apart = deal(Owned(), public_fraction=0.3).compare().overlap
    assert {pair: counted.units for pair, counted in apart.items()} == dict.fromkeys(apart, 0)
    mixed = deal(Owned(first_test=0), public_fraction=0.3)
    shared = {int(owner) for owner in OWNER[private_places(extract_examples_by_role(mixed))]} & set(range(50))
    assert mixed.compare().overlap["test in private"].units == len(shared) > 0
    with pytest.raises(SpecError, match=r"No board accepts this run"):
        refuse_forbidden_overlap(mixed, "board")


def test_without_units_none_are_counted() -> None:
    counted = deal(public_fraction=0.3).compare().overlap["test in private"]
    assert "units" not in counted.model_dump()


@dataclass(frozen=True)
class Given(Owned):
    """Owned images, and three of owner 10 that are public from the start."""

    name: ClassVar[str] = "given"

    def load(self) -> Splits:
        images = [Image.new("L", (2, 2), level) for level in (251, 252, 253)]
        public = Split(images, np.arange(3), np.full(3, OWNER[100]))
        return replace(super().load(), public=public)


def test_a_unit_with_public_and_private_images_is_refused_however_few_they_are() -> None:
    images = deal(Given(), public_fraction=0.1)
    found = extract_examples_by_role(images)
    assert OWNER[100] in OWNER[private_places(found)]
    with pytest.raises(
        SpecError, match=r"Public in private: expected at most 0% .* of a unit that is in both splits, got 3"
    ):
        refuse_forbidden_overlap(images, "none")
    assert found.public_units is not None and len(found.public_units) == len(found.public.x)


def test_public_examples_without_units_are_each_their_own() -> None:
    @dataclass(frozen=True)
    class Unknown(Given):
        def load(self) -> Splits:
            splits = super().load()
            assert splits.public is not None
            return replace(splits, public=replace(splits.public, units=None))

    found = roles(Unknown(), public_fraction=0.1)
    assert found.public_units is not None
    *own, first, second, third = found.public_units.tolist()
    assert len({first, second, third} - set(own)) == 3


def test_units_of_another_dataset_have_numbers_of_their_own() -> None:
    images = deal(Owned(side=2), public=Owned(first=56), allow_overlap=True)
    found = extract_examples_by_role(images)
    assert images.shared_units == {"test in private": 0}
    assert found.public_units is not None and len(found.public_units) == TRAIN


@pytest.mark.parametrize(
    ("pair", "units", "refused"),
    [("test in private", 1, False), ("test in private", 2, True), (PUBLIC_IN_PRIVATE, 1, True)],
)
def test_of_test_images_one_in_a_hundred_may_be_of_a_private_unit_and_of_public_ones_none(
    pair: str, units: int, refused: bool
) -> None:
    counted = OverlapCounts(exact=0, near=0, among=100, units=units)
    assert bool(list(find_excess_overlap({pair: counted}, 1000))) == refused


UNITS = np.arange(TRAIN)


@pytest.mark.parametrize(
    ("units", "word", "said"),
    [
        (UNITS[:-1], "owner", r"an array of 200 int64 units in the train split .*, got int64 \(199,\)"),
        (UNITS.astype(float), "owner", r"an array of 200 int64 units .*, got float64 \(200,\)"),
        (UNITS.tolist(), "owner", r"an array of 200 int64 units .*, got a list"),
        (np.zeros(TRAIN, np.int64), "owner", r"at least as many owners .* as its 10 classes, got 1 for 200 examples"),
        (UNITS % 9, "owner", r"at least as many owners .* as its 10 classes, got 9 for 200 examples"),
        (UNITS, "", r"units in the train split of dataset 'broken' and a word for them.*got units and the word ''"),
        (None, "owner", r"got no units and the word 'owner'"),
        (UNITS, "image", r"got units and the word 'image'"),
    ],
)  # fmt: skip
def test_units_that_do_not_fit_are_refused_in_one_sentence(units: Any, word: str, said: str) -> None:
    class Broken(Numbered):
        name: ClassVar[str] = "broken"

        def load(self) -> Splits:
            splits = super().load()
            return replace(splits, train=replace(splits.train, units=units), unit=word)

    with pytest.raises(DataError, match=said):
        roles(Broken())


def test_test_units_are_held_to_the_length_of_the_test_split() -> None:
    class Broken(Owned):
        def load(self) -> Splits:
            splits = super().load()
            return replace(splits, test=replace(splits.test, units=np.arange(3)))

    with pytest.raises(DataError, match=r"an array of 50 int64 units in the test split of dataset 'owned'"):
        roles(Broken())


def test_rows_and_labels_stay_together() -> None:
    found = roles(Owned(), public_fraction=0.3)
    places = torch.tensor(private_places(found))
    assert torch.equal(found.private.y, places % 10)
