"""Roles: which example is private, public or test, and what is refused before anything is learned."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dpbench import DataError, Dataset, Extractor, Split, Splits
from dpbench.errors import DpbenchError, SpecError
from dpbench.harness.roles import ExamplesByRole, extract_examples_by_role
from dpbench.harness.source import DataSource
from dpbench.harness.split_images import SplitImages, SplitName, assign_images
from dpbench.records.spec import make_spec
from dpbench.registry import Registration
from dpbench.registry.components import BuiltComponents
from tests.helpers import gallery

pytestmark = pytest.mark.usefixtures("fresh_cache")

TRAIN, TEST = 200, 50


@dataclass(frozen=True)
class Flat(Extractor):
    name: ClassVar[str] = "flat"

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image)).float()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.flatten(1)


@dataclass(frozen=True)
class Numbered(Dataset):
    """Images whose grey level is their place; the label is the place's last digit."""

    name: ClassVar[str] = "numbered"
    classes: ClassVar[tuple[str, ...]] = tuple("0123456789")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"

    side: int = 2
    first: int = 0

    def load(self) -> Splits:
        return Splits(self.split(TRAIN), self.split(TEST), f"numbered-{self.side}-{self.first}")

    def split(self, size: int) -> Split:
        levels = [self.first + place for place in range(size)]
        images = [Image.new("L", (self.side, self.side), level) for level in levels]
        return Split(images, np.array(levels, dtype=np.int64) % 10)


def deal(
    dataset: Dataset | None = None, public: Dataset | None = None, extractor: Extractor | None = None, **values: Any
) -> SplitImages:
    if public is not None:
        values["public_dataset"] = public.name
    spec = make_spec({"learner": "any", "unit": "image", **values}, "the test")
    source = DataSource(parts(dataset or Numbered(), public, extractor or Flat()), spec.split_rule, torch.device("cpu"))
    return assign_images(source, spec.budget)


def roles(dataset: Dataset | None = None, public: Dataset | None = None, **values: Any) -> ExamplesByRole:
    return extract_examples_by_role(deal(dataset, public, **values))


def parts(dataset: Dataset, public: Dataset | None, extractor: Extractor) -> BuiltComponents:
    brought = {
        role: Registration(type(part), "plugin", "wheel", "1")
        for role, part in {"dataset": dataset, "public_dataset": public}.items()
    }
    return BuiltComponents(dataset, public, extractor, gallery.Honest(), brought)


def private_places(found: ExamplesByRole) -> list[int]:
    return [int(place) for place in found.private.x[found.private.index][:, 0]]


def public_places(found: ExamplesByRole) -> list[int]:
    return [int(place) for place in found.public.x[:, 0]]


def test_a_tenth_is_public_and_the_rest_private() -> None:
    found = roles()
    assert (len(found.public.x), len(found.private)) == (20, 180)


def test_public_and_private_are_disjoint_and_cover_the_training_split() -> None:
    found = roles(public_fraction=0.3)
    assert sorted(private_places(found) + public_places(found)) == list(range(TRAIN))


def test_train_fraction_keeps_a_part_of_the_private_examples() -> None:
    found = roles(train_fraction=0.5)
    assert len(found.private) == 90
    assert set(private_places(found)) < set(private_places(roles()))


def test_train_fraction_leaves_public_data_alone() -> None:
    assert public_places(roles(train_fraction=0.5)) == public_places(roles())


def test_labels_stay_with_their_images() -> None:
    found = roles()
    assert found.private.y.tolist() == [place % 10 for place in private_places(found)]
    assert found.public.y is not None
    assert found.public.y.tolist() == [place % 10 for place in public_places(found)]
    test = deal().load_test_split()
    assert test.scorer.y.tolist() == [int(place) % 10 for place in test.x[:, 0]]


def test_the_test_split_is_whole() -> None:
    assert deal(train_fraction=0.1).load_test_split().x[:, 0].tolist() == list(range(TEST))


@dataclass(frozen=True)
class Sorted(Numbered):
    """The label is the place's tens: 20 training and 5 test examples a class."""

    name: ClassVar[str] = "sorted"

    def split(self, size: int) -> Split:
        return Split(super().split(size).images, np.arange(size, dtype=np.int64) * 10 // size)


def sizes(labels: Any) -> list[int]:
    return [int(count) for count in np.bincount(np.asarray(labels), minlength=10)]


def test_imbalance_keeps_the_first_class_whole_and_of_the_last_its_share() -> None:
    found = roles(Sorted(), imbalance=20, public_fraction=0)
    assert sizes(found.private.y) == [20, 14, 10, 7, 5, 4, 3, 2, 1, 1]
    assert found.task.size == len(found.private) == 67


def test_imbalance_is_that_of_public_and_test_data_too() -> None:
    found = roles(Sorted(), imbalance=9, public_fraction=0.3)
    both = [*private_places(found), *public_places(found)]
    assert len(set(both)) == len(both)
    assert sizes(np.array(both) // 20) == [20, 16, 12, 10, 8, 6, 5, 4, 3, 2]
    assert sizes(deal(Sorted(), imbalance=9).load_test_split().scorer.y) == [5, 4, 3, 2, 2, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("ratio", [41, 1e4])
def test_an_imbalance_that_leaves_nothing_of_a_class_is_refused(ratio: float) -> None:
    assert sizes(roles(Sorted(), imbalance=39, public_fraction=0).private.y)[9] == 1
    with pytest.raises(SpecError, match=rf"Expected imbalance={re.escape(f'{ratio:g}')} below 40, so that every class"):
        roles(Sorted(), imbalance=ratio)


def test_an_imbalance_that_leaves_nothing_of_a_class_to_test_on_is_refused() -> None:
    with pytest.raises(SpecError, match="Expected imbalance=20 below 10, so that every class that has examples"):
        deal(Sorted(), imbalance=20).load_test_split()


def test_the_images_on_record_are_those_that_imbalance_keeps() -> None:
    images = deal(Sorted(), imbalance=4)
    found = extract_examples_by_role(images)
    played = {
        "private": len(found.private),
        "public": len(found.public.x),
        "test": len(images.load_test_split().scorer.y),
    }
    assert {name: len(images.hash_split(name)) for name in get_args(SplitName)} == played
    assert images.compare().overlap["test in private"].among == played["test"]


def test_labels_stay_with_their_images_in_an_unbalanced_part() -> None:
    found = roles(Sorted(), imbalance=4)
    assert found.private.y.tolist() == [place // 20 for place in private_places(found)]
    test = deal(Sorted(), imbalance=4).load_test_split()
    assert test.scorer.y.tolist() == [int(place) // 5 for place in test.x[:, 0]]


def test_the_split_seed_decides_which_examples_of_a_class_are_kept() -> None:
    kept = [set(private_places(roles(Sorted(), imbalance=4, public_fraction=0, split_seed=seed))) for seed in (0, 0, 1)]
    assert kept[0] == kept[1] != kept[2]
    assert set(range(20)) <= kept[0] & kept[2]


def test_a_public_dataset_stays_as_it_was_published_beside_an_unbalanced_part() -> None:
    found = roles(Sorted(), public=Numbered(first=50), imbalance=20, allow_overlap=True)
    assert (len(found.public.x), len(found.private)) == (TRAIN, 67)


def test_the_task_states_size_shape_and_classes() -> None:
    task = roles(public_fraction=0.3, train_fraction=0.5).task
    assert (task.size, task.example_shape, task.classes) == (70, (4,), 10)


def test_without_public_data_everything_is_private() -> None:
    found = roles(public_fraction=0)
    assert (len(found.public.x), len(found.private)) == (0, TRAIN)


def test_another_split_seed_gives_another_split() -> None:
    assert private_places(roles(split_seed=1)) != private_places(roles())


def test_the_split_depends_on_nothing_but_its_seed_and_fractions() -> None:
    other = roles(learner="other", epsilon=3, seeds=[8], secure_rng=True)
    assert private_places(other) == private_places(roles())


def test_the_split_stays_the_one_of_published_results() -> None:
    assert public_places(roles())[:6] == [6, 54, 65, 71, 72, 90]


def test_a_public_dataset_is_public_whole_and_keeps_every_private_example() -> None:
    found = roles(public=Numbered(first=50), allow_overlap=True)
    assert public_places(found) == list(range(50, 250))
    assert private_places(found) == list(range(TRAIN))


def test_a_task_tells_whether_public_data_are_of_another_dataset() -> None:
    assert roles().task.same_source
    assert not roles(public=Numbered(first=50), allow_overlap=True).task.same_source


def test_digests_name_the_data_of_each_role() -> None:
    assert deal(public=Numbered(first=50), allow_overlap=True).digests == {
        "private": "numbered-2-0",
        "public": "numbered-2-50",
    }


def test_a_public_dataset_that_is_the_private_one_is_refused() -> None:
    with pytest.raises(DpbenchError, match="numbered"):
        roles(public=Numbered())


def test_a_public_dataset_of_another_shape_is_refused_with_a_hint() -> None:
    with pytest.raises(DataError, match=r"shape \(9,\), the private one \(4,\).*pixels:size=32"):
        roles(public=Numbered(side=3))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_out_of_range_names_split_and_place(split: str, label: int) -> None:
    class Wrong(Numbered):
        def load(self) -> Splits:
            splits = super().load()
            getattr(splits, split).labels[7] = label
            return splits

    with pytest.raises(DataError, match=rf"0\.\.9 in the {split} split of dataset 'numbered', got {label} at index 7"):
        deal(Wrong()).load_test_split()


@pytest.mark.parametrize("came", [None, ([], []), Splits([], [], "lists")])  # type: ignore[arg-type]
def test_a_dataset_that_loads_something_else_is_named_with_who_brought_it(came: Any) -> None:
    class Wrong(Numbered):
        def load(self) -> Splits:
            return came  # type: ignore[no-any-return]

    with pytest.raises(
        DataError, match=r"Expected Splits of .* from load of 'numbered' \(plugin 'plugin', wheel 1\), got "
    ):
        roles(Wrong())


@pytest.mark.parametrize(
    ("labels", "came"),
    [
        (np.zeros(TRAIN, np.int32), "int32"),
        (np.zeros(TRAIN), "float64"),
        (np.zeros(9, int), r"\(9,\)"),
        ([0] * TRAIN, "got a list"),
    ],
)
def test_labels_of_another_type_or_number_are_refused(labels: np.ndarray[Any, Any], came: str) -> None:
    class Wrong(Numbered):
        def load(self) -> Splits:
            splits = super().load()
            return Splits(Split(splits.train.images, labels), splits.test, splits.digest)

    with pytest.raises(DataError, match=rf"Expected an array of 200 int64 labels in the train split.*{came}"):
        roles(Wrong())


@pytest.mark.parametrize("delta", [1 / 180, 0.5])
def test_a_delta_that_allows_publishing_a_row_is_refused(delta: float) -> None:
    with pytest.raises(SpecError, match=r"\(0, 1/n\) with n=180"):
        roles(delta=delta)


def test_a_delta_just_below_is_accepted() -> None:
    assert roles(delta=0.999 / 180).task.size == 180


@pytest.mark.parametrize("fractions", [{"public_fraction": 0.999}, {"train_fraction": 0.001}])
def test_a_split_without_private_examples_is_refused(fractions: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"No private example is left of 200"):
        roles(**fractions)


def test_nothing_is_extracted_when_the_budget_is_refused() -> None:
    class Unseen(Flat):
        def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
            raise AssertionError

    with pytest.raises(SpecError):
        deal(extractor=Unseen(), delta=0.5)


def test_private_images_that_equal_a_public_one_are_left_out() -> None:
    images = deal(public=Numbered(first=TRAIN - 10))
    found = extract_examples_by_role(images)
    assert private_places(found) == list(range(TRAIN - 10))
    assert (images.left_out, images.private_count_with_copies, found.task.size, len(found.private)) == (
        10,
        TRAIN,
        TRAIN - 10,
        TRAIN - 10,
    )
    assert found.private.y.tolist() == [place % 10 for place in range(TRAIN - 10)]
    assert images.compare().overlap["public in private"].exact == 0


def test_leaving_out_copies_of_public_images_changes_the_noise() -> None:
    assert deal().identity == deal().digests
    assert deal(public=Numbered(first=TRAIN - 10)).identity["left out"] == "10"


def test_more_copies_than_a_tenth_are_refused() -> None:
    assert deal(public=Numbered(first=TRAIN - 20)).left_out == 20
    with pytest.raises(SpecError, match=r"at most 10% of the 200 private images to equal a public image, got 21\."):
        roles(public=Numbered(first=TRAIN - 21))


def test_private_copies_of_one_public_image_are_counted_one_by_one() -> None:
    @dataclass(frozen=True)
    class Grey(Numbered):
        name: ClassVar[str] = "grey"

        def load(self) -> Splits:
            splits = super().load()
            images = [Image.new("L", (2, 2), 255 if place < 30 else place) for place in range(TRAIN)]
            return Splits(Split(images, splits.train.labels), splits.test, "grey")

    with pytest.raises(SpecError, match=r"at most 10% of the 200 private images to equal a public image, got 30\."):
        roles(Grey(), public=Numbered(first=255))


def test_copies_stay_where_the_spec_allows_overlap() -> None:
    found = deal(public=Numbered(first=TRAIN - 10), allow_overlap=True)
    assert (found.left_out, len(found.private)) == (0, TRAIN)


def test_an_image_of_a_unit_is_left_out_alone_and_units_are_numbered_without_a_gap() -> None:
    @dataclass(frozen=True)
    class Pairs(Numbered):
        def load(self) -> Splits:
            splits = super().load()
            pairs = np.arange(TRAIN, dtype=np.int64) // 2
            return Splits(dataclasses.replace(splits.train, units=pairs), splits.test, splits.digest, unit="pair")

    images = deal(Pairs(), public=Numbered(first=TRAIN - 3), unit="pair")
    found = extract_examples_by_role(images)
    assert (images.left_out, images.private_count_with_copies, found.task.size, len(found.private)) == (
        3,
        100,
        99,
        TRAIN - 3,
    )
    assert images.private_units is not None
    assert images.private_units[-3:].tolist() == [97, 97, 98]
