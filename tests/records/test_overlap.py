"""How many images two splits may share before a board refuses the run."""

from __future__ import annotations

import pytest

from dpbench.records.overlap import AlteredCopyCounts, CopyCounts, OverlapCounts, find_excess_overlap


def _pairs(exact: int, near: int, pair: str = "test in public", test: int = 1000, public: int = 500) -> list[str]:
    none = {
        "test in private": OverlapCounts(exact=0, near=0, among=test),
        "test in public": OverlapCounts(exact=0, near=0, among=test),
        "public in private": OverlapCounts(exact=0, near=0, among=public),
    }  # fmt: skip
    counted = OverlapCounts(exact=exact, near=near, among=none[pair].among)
    return [found for found, _ in find_excess_overlap({**none, pair: counted}, private=5000)]


def test_a_public_split_that_repeats_the_test_split_is_too_much() -> None:
    assert _pairs(1000, 1000) == ["test in public"]
    assert _pairs(1000, 1000, "test in private") == ["test in private"]


def test_a_test_split_that_was_compressed_again_is_too_much() -> None:
    assert _pairs(0, 999) == ["test in public"]


@pytest.mark.parametrize(("exact", "ok"), [(0, True), (5, True), (6, False)])
def test_the_share_is_of_the_smaller_split(exact: int, ok: bool) -> None:
    assert (_pairs(exact, exact) == []) == ok


def test_look_alikes_are_no_copies() -> None:
    assert _pairs(0, 2262, "test in private", test=10_000) == []  # Fashion-MNIST, of 54,000 private images
    assert _pairs(0, 1091, test=10_000, public=6_000) == []


@pytest.mark.parametrize(("units", "ok"), [(None, False), (0, True), (1, False)])
def test_near_copies_do_not_count_where_the_splits_have_other_patients(units: int | None, ok: bool) -> None:
    counted = OverlapCounts(exact=0, near=400, among=500, units=units)
    assert (list(find_excess_overlap({"public in private": counted}, private=5000)) == []) == ok


@pytest.mark.parametrize("units", [None, 0])
def test_exact_copies_count_whoever_the_patients_are(units: int | None) -> None:
    counted = OverlapCounts(exact=6, near=6, among=500, units=units)
    ((_, said),) = find_excess_overlap({"public in private": counted}, private=5000)
    assert said.endswith("to be exact copies, got 6")


@pytest.mark.parametrize(("exact", "near", "ok"), [(5, 5, True), (6, 6, False), (0, 250, True), (0, 251, False)])
def test_public_images_that_are_private_ones_are_outside_epsilon(exact: int, near: int, ok: bool) -> None:
    assert (_pairs(exact, near, "public in private") == []) == ok


@pytest.mark.parametrize(("images", "ok"), [(0, True), (10, True), (11, False)])
def test_a_private_split_that_repeats_images_is_too_much(images: int, ok: bool) -> None:
    assert (CopyCounts(images=images, most=2, among=1000).excess_complaint is None) == ok


@pytest.mark.parametrize(("found", "ok"), [(0, True), (500, True), (501, False)])
def test_altered_copies_of_more_than_half_are_too_many(found: int, ok: bool) -> None:
    complaint = AlteredCopyCounts(found=found, among=1000).excess_complaint
    assert complaint is None if ok else str(complaint).endswith("edges or inversion, got 501")


def test_without_public_images_nothing_is_compared() -> None:
    assert _pairs(0, 0, public=0) == []
    assert list(find_excess_overlap({}, 10)) == []


def test_the_sentence_names_the_share_and_the_numbers() -> None:
    counted = OverlapCounts(exact=30, near=30, among=1000)
    ((_, said),) = find_excess_overlap({"test in private": counted}, private=2000)
    assert said == "expected at most 1% of the 1,000 images of the smaller split to be exact copies, got 30"
