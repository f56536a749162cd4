"""Exhibits outside row functions: datasets, extractors and settings that are run, checked and submitted to a board."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from dpbench.api import Learner
from dpbench.errors import DpbenchError
from dpbench.harness.guarantee import compute_epsilon_for_copies
from dpbench.harness.session import open_session
from dpbench.records.search import UNRANKED
from dpbench.testing.checking import check_laws
from dpbench_lab.museum.exhibit import ClaimedAndTrueEpsilon, Exhibit, Findings
from dpbench_lab.museum.strangers import EPSILON, extend_registry, make_digits_spec, prepare_learner, run_learner

PHOTOS = {"cats": 9, "dogs": 5}
"""How many photos each class has."""
BLUE = {"cats": 200, "dogs": 100}


@dataclass(frozen=True)
class DataBug(Exhibit):
    """A dataset or an extractor in which one image affects the rows of others, or has several rows."""

    learner: type[Learner]
    role: Literal["dataset", "public_dataset", "extractor"] = "dataset"
    copies: int = 1  # of one image
    photos: bool = False  # it reads a folder of photos
    alone: tuple[str, ...] = ()  # further classes of these photos, with a single photo each
    leaks: bool = False  # a function of private rows that no noise covers: no epsilon holds

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon | None:
        """Return the epsilon of one row and that of all rows of one image (infinite if rows leak); None if unknown."""
        if self.leaks:
            return ClaimedAndTrueEpsilon(EPSILON, math.inf)
        if self.copies == 1:
            return None
        found = compute_epsilon_for_copies(prepare_learner(self.learner).privacy, self.copies)
        return None if found is None else ClaimedAndTrueEpsilon(EPSILON, found)

    def visit(self) -> Findings:
        """Run the exhibit; if the run passes, check its laws; if these pass too, run it for a board."""
        findings: dict[Any, str | None] = {}
        with self._provide_component_name() as name:
            values = {self.role: name, "public_fraction": 0.0}
            findings["while running"] = self._run(values, for_board=False)
            if findings["while running"] is None:
                laws = check_laws(extend_registry(self.shown), name)
                findings["dpbench check"] = next((outcome.complaint for outcome in laws if outcome.complaint), None)
                if findings["dpbench check"] is None:
                    findings["board"] = self._run(values, for_board=True)
        return findings

    def _run(self, values: dict[str, Any], *, for_board: bool) -> str | None:
        try:
            run_learner(self.learner, self.shown, for_board=for_board, **values)
        except DpbenchError as error:
            return str(error)
        return None

    @contextmanager
    def _provide_component_name(self) -> Iterator[str]:
        if not self.photos:
            yield self.shown.name
            return
        with tempfile.TemporaryDirectory() as folder:
            for split in ("train", "test"):
                for kind, count in (PHOTOS | dict.fromkeys(self.alone, 1)).items():
                    place = Path(folder) / split / kind
                    place.mkdir(parents=True)
                    for number in range(count):
                        _make_photo(number, kind, is_last=number == count - 1).save(place / f"{number}.png")
            yield f"{self.shown.name}:{folder}"


def _make_photo(number: int, kind: str, *, is_last: bool) -> Image.Image:
    """Return photo `number` of a class; the last photo has the same mean colour as the one before it."""
    level, blue = 20 * max(0, number - is_last), BLUE.get(kind, 40)
    photo = Image.new("RGB", (8, 8), (level, 60 + 9 * is_last, blue))
    photo.paste((level, 60 - 9 * is_last, blue), (0, 0, 8, 4))
    return photo


@dataclass(frozen=True)
class LaunderedSettings(Exhibit):
    """Settings that were chosen on slightly changed private images, and then used on the images themselves."""

    learner: type[Learner]

    def visit(self) -> Findings:
        """Choose settings on altered copies, run on the originals, and check which origin the record states."""
        session = open_session("cpu", plugins=extend_registry(self.learner, self.shown))
        search = {"rule": "public-validation", "space": {"learning_rate": [1.0, 2.0]}}
        there = make_digits_spec(self.learner, dataset=self.shown.name, split_seed=1, public_labels=True, search=search)
        with tempfile.TemporaryDirectory() as folder:
            settings = session.tune(there).write(Path(folder))
            result = session.run(make_digits_spec(self.learner), settings=settings)
        rule = result.selection
        return {"board": f"The settings are recorded as {rule}, which no board ranks." if rule in UNRANKED else None}
