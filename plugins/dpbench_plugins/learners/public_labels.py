"""The check for public labels, shared by several learners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench import PublicData, SpecError

if TYPE_CHECKING:
    from torch import Tensor


def require_public_labels(public: PublicData, learner: str) -> Tensor:
    """Return the public labels (m,).

    Raises:
        SpecError: there are no labels, or all are of one class; the message names `learner`.
    """
    if public.y is None or not len(public.y):
        raise SpecError(f"Learner {learner!r} needs public labels of two classes or more. Add --public-labels.")
    if bool((public.y == public.y[0]).all()):
        raise SpecError(
            f"Learner {learner!r} needs public labels of at least two classes, but all {len(public.y)} are of class "
            f"{int(public.y[0])}. Label an example of another class, or use a learner that reads no labels, such as "
            "thrift."
        )
    return public.y
