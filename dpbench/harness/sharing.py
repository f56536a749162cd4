"""Check which images the splits of a run have in common, and refuse forbidden overlap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from dpbench.errors import SpecError
from dpbench.harness.split_images import PUBLIC_IN_PRIVATE, USE_OTHER_PUBLIC_DATA, SplitImages
from dpbench.records.overlap import AlteredCopyCounts, OverlapCounts, find_excess_overlap

Sharing = Literal["board", "none", "any"]
"""The overlap between splits that a run accepts; see `refuse_forbidden_overlap`."""


def refuse_forbidden_overlap(images: SplitImages, sharing: Sharing) -> None:
    """Refuse the overlap between splits that `sharing` does not accept.

    `none` accepts no public data that share too many images with the private split (`records.overlap`), because epsilon
    does not cover what is learned from public data. `board` accepts only what boards accept; only then are images of
    the test split read. `any` accepts everything.

    Raises:
        SpecError: the overlap is forbidden; the message names the splits and counts copies and near-copies.
    """
    if sharing == "board":
        _check_board_limits(images)
    elif sharing == "none" and images.has_public:
        overlap, altered = images.count_public_copies()
        for said in _list_complaints({PUBLIC_IN_PRIVATE: overlap}, altered, len(images.private)):
            raise SpecError(f"{said}. {USE_OTHER_PUBLIC_DATA}")


def _list_complaints(
    overlap: Mapping[str, OverlapCounts], altered: AlteredCopyCounts | None, private: int
) -> Iterator[str]:
    for pair, said in find_excess_overlap(overlap, private):
        yield f"{pair.capitalize()}: {said}"
    if altered is not None and (complaint := altered.excess_complaint):
        yield f"{PUBLIC_IN_PRIVATE.capitalize()}: {complaint}"


def _check_board_limits(images: SplitImages) -> None:
    if undeclared := sorted({name for name, said in images.processing_by_split.items() if not said}):
        raise SpecError(
            f"No board accepts this run: the dataset does not say how its {' and '.join(undeclared)} images were made. "
            "List them as Records, hand them over as DeclaredImages with a sentence on what was done to each, or run "
            "without --board."
        )
    compared = images.compare()
    wrong = [*_list_complaints(compared.overlap, compared.altered, len(images.private))]
    if (many := compared.copies.excess_complaint) is not None:
        wrong.append(f"Private split: {many}")
    if wrong:
        raise SpecError(f"No board accepts this run. {wrong[0]}. Run it without --board.")
