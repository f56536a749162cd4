"""Inspections: numbers that have closed forms, what is read and what is not, and plots."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from dpbench import DataError, Dataset, Extractor, Learner, Split, Splits
from dpbench.errors import OutputError
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import Registration, Registry
from dpbench_lab.inspect import machines, spectrum
from dpbench_lab.inspect.inspection import run_inspection
from dpbench_lab.inspect.margins import group_margins_by_class, largest_margin, measure_margins
from dpbench_lab.inspect.panels import WARNING, write_inspection_plot
from dpbench_lab.inspect.report import MARK, Inspection, InspectionRequest, SvmMargins, make_request
from dpbench_lab.inspect.separability import choose_pairs, compute_normal_separability, measure_separability
from tests.helpers import gallery
from tests.helpers.commands import Refusal
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("fresh_cache")

NAMES = tuple("abcdefghijkl")


def spec_of(values: Mapping[str, Any]) -> Spec:
    return make_spec({**values, "learner": "public-only"}, "the test")


def asked(k: Sequence[int] = (1, 2), **values: Any) -> InspectionRequest:
    found = make_request(
        spec_of({}), [str(dimension) for dimension in k], read_private=False, pairs=values.pop("pairs", 50), svm_c=1e4
    )
    return found.model_copy(update=values)


def at(*degrees: float) -> np.ndarray:
    """Return unit vectors of the plane, (n, 2)."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def opposed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows as class 0 and their negatives as class 1."""
    return np.vstack([rows, -rows]), np.repeat([0, 1], len(rows))


def clouds(n: int = 120, d: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return overlapping clouds at unit length."""
    draw = np.random.default_rng(0)
    y = np.arange(n) % classes
    return spectrum.scale_rows_to_unit_length(draw.normal(size=(classes, d))[y] + draw.normal(size=(n, d)) * 0.6), y


def rotated(x: np.ndarray) -> np.ndarray:
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(x.shape[1], x.shape[1])))
    found: np.ndarray = x @ turn
    return found


# Spectrum


def of_covariance(values: Sequence[float], n: int, d: int) -> np.ndarray:
    """Return (n, d) rows whose covariance has exactly these eigenvalues, and zeros."""
    draw = np.random.default_rng(0)
    left = draw.normal(size=(n, len(values)))
    left, _ = np.linalg.qr(left - left.mean(0))
    right, _ = np.linalg.qr(draw.normal(size=(d, len(values))))
    rows: np.ndarray = left * np.sqrt(n * np.array(values)) @ right.T + draw.normal(size=d)
    return rows


@pytest.mark.parametrize(("n", "d"), [(50, 7), (7, 50)], ids=["by the covariance", "by the Gram matrix"])
def test_the_eigenvalues_are_those_of_the_covariance(n: int, d: int) -> None:
    found = spectrum.compute_eigen_decomposition(of_covariance([4, 2, 1], n, d), centre=True)
    assert found.values == pytest.approx([4, 2, 1, 0, 0, 0, 0], abs=1e-12)
    assert found.vectors.shape == (d, 3)
    assert found.vectors.T @ found.vectors == pytest.approx(np.eye(3), abs=1e-9)


@pytest.mark.parametrize(("n", "d"), [(50, 7), (7, 50)])
def test_the_components_are_eigenvectors(n: int, d: int) -> None:
    x = of_covariance([4, 2, 1], n, d)
    found = spectrum.compute_eigen_decomposition(x, centre=True)
    covariance = np.cov(x.T, bias=True)
    assert covariance @ found.vectors == pytest.approx(found.vectors * found.values[:3], abs=1e-9)


def test_without_centring_the_components_are_those_of_the_second_moment() -> None:
    x = np.array([[3.0, 0], [3, 1], [3, -1]])
    assert spectrum.compute_eigen_decomposition(x, centre=False).values == pytest.approx([9, 2 / 3])
    assert spectrum.compute_eigen_decomposition(x, centre=True).values == pytest.approx([2 / 3, 0])


def test_explained_variance_is_the_share_of_the_first_k() -> None:
    assert spectrum.summarise_spectrum(np.array([4.0, 2, 1, 1]), (1, 2, 4)).explained == pytest.approx((0.5, 0.75, 1))


@pytest.mark.parametrize(
    ("values", "participation", "entropy"),
    [([3.0] * 5, 5, 5), ([7.0, 0, 0], 1, 1), ([2.0, 1, 1], 16 / 6, 2**1.5)],
)
def test_effective_ranks_have_their_closed_forms(values: list[float], participation: float, entropy: float) -> None:
    found = spectrum.summarise_spectrum(np.array(values), (1,))
    assert found.participation_ratio == pytest.approx(participation)
    assert found.entropy_rank == pytest.approx(entropy)


def test_equal_rows_have_no_spectrum() -> None:
    with pytest.raises(DataError, match="got 9 equal rows"):
        spectrum.compute_eigen_decomposition(np.full((9, 4), 0.1), centre=True)


def test_rows_are_scaled_to_length_1_and_zeros_stay() -> None:
    assert spectrum.scale_rows_to_unit_length(np.array([[3.0, 4], [0, 0]])).tolist() == [[0.6, 0.8], [0, 0]]


# Separability


def test_xi_of_a_separable_pair_is_the_one_computed_by_hand() -> None:
    """The SVM lies between its support at 40 and -40 degrees; what is far from the border turn only the components."""
    x, y = opposed(np.vstack([np.repeat(at(40, -40), 50, axis=0), np.repeat(at(20), 100, axis=0)]))
    found = measure_separability(x, y, NAMES, asked())
    moment = (at(40, -40, 20, 20).T @ at(40, -40, 20, 20)) / 4
    turn = 0.5 * np.arctan2(2 * moment[0, 1], moment[0, 0] - moment[1, 1])  # of the first eigenvector
    assert found.pairs[0].own == pytest.approx((1 - np.cos(turn), 0), abs=1e-5)
    assert found.pairs[0].gamma == pytest.approx(np.cos(np.radians(40)), abs=1e-5)
    assert found.pairs[0].wrong == 0


def test_xi_is_by_components_that_are_not_centred() -> None:
    """With nine in ten examples in one class, centring would take away most of what separates the classes."""
    rows = np.repeat(at(40, -40), 10, axis=0)
    x, y = np.vstack([np.repeat(rows, 9, axis=0), -rows]), np.repeat([0, 1], [180, 20])
    assert measure_separability(x, y, NAMES, asked()).pairs[0].own == pytest.approx((0, 0), abs=1e-6)


def test_xi_differs_between_the_components_of_the_pair_and_those_of_all_classes() -> None:
    x, y = opposed(np.repeat(at(30, -30), 10, axis=0))
    x, y = np.vstack([x, np.repeat(at(90, -90), 100, axis=0)]), np.append(y, [2] * 200)
    found = measure_separability(x, y, NAMES, asked())
    pair = next(pair for pair in found.pairs if pair.classes == ("a", "b"))
    assert pair.own == pytest.approx((0, 0), abs=1e-6)
    assert pair.shared == pytest.approx((1, 0), abs=1e-6)


def test_xi_of_a_vector_is_what_its_projection_lacks() -> None:
    assert compute_normal_separability(np.array([0.6, 0, 0.8]), np.eye(3), (1, 2, 3)) == pytest.approx((0.4, 0.4, 0))
    assert compute_normal_separability(np.array([0.0, 1, 0]), np.eye(3)[:, :1], (1, 3)) == (1, 1)


def test_xi_never_rises_with_k_and_all_components_leave_nothing() -> None:
    x, y = clouds()
    for pair in measure_separability(x, y, NAMES, asked(range(1, 7))).pairs:
        for values in (pair.own, pair.shared):
            assert list(values) == sorted(values, reverse=True)
            assert values[-1] == pytest.approx(0, abs=1e-9)


def test_xi_needs_no_more_components_than_a_pair_has_examples() -> None:
    x, y = clouds(n=12, d=40)
    found = measure_separability(x, y, NAMES, asked((8, 12)))
    assert [pair.own for pair in found.pairs] == [pytest.approx((0, 0), abs=1e-6)] * 3


def test_the_spread_is_over_pairs() -> None:
    x, y = clouds()
    found = measure_separability(x, y, NAMES, asked())
    first = [pair.own[0] for pair in found.pairs]
    assert (found.own.smallest[0], found.own.median[0], found.own.largest[0]) == tuple(sorted(first))


def test_more_pairs_than_asked_for_are_drawn_by_the_seed() -> None:
    drawn, possible = choose_pairs(range(100), 50, 0)
    assert (len(set(drawn)), possible) == (50, 4950)
    assert drawn == choose_pairs(range(100), 50, 0)[0] == sorted(drawn)
    assert drawn != choose_pairs(range(100), 50, 1)[0]


# Margins


def margins_of(x: np.ndarray, y: np.ndarray, k: Sequence[int] = (1, 2)) -> SvmMargins:
    return group_margins_by_class(
        measure_margins(x, y, spectrum.compute_eigen_decomposition(x, centre=True), k, 1e4), NAMES[: len(np.unique(y))]
    )


def test_margins_of_a_separable_set_are_its_distance_to_the_border() -> None:
    """The first component is blind to the classes: in one dimension nothing is separated."""
    found = margins_of(*opposed(np.repeat([[0.6, 0.8], [0.6, -0.8]], 20, axis=0)))
    assert np.array(found.smallest) == pytest.approx(np.array([[0, 0.6], [0, 0.6]]), abs=1e-6)


def test_the_border_need_not_go_through_the_mean() -> None:
    found = margins_of(np.repeat(at(0, 60), [30, 10], axis=0), np.repeat([0, 1], [30, 10]), (1,))
    assert found.smallest[0] == pytest.approx((0.5,), abs=1e-4)  # half of their distance, 1


def test_a_margin_is_negative_where_too_many_rows_are_on_the_wrong_side() -> None:
    x, y = opposed(np.repeat([[0.6, 0.8], [0.6, -0.8]], 20, axis=0))
    wrong = y.copy()
    wrong[[0, 20, 40, 60]] = 1 - y[[0, 20, 40, 60]]  # 5% of the rows, balanced: the border stays
    found = margins_of(x, wrong, (2,))
    assert [values[0] for values in found.smallest] == [pytest.approx(-0.6, abs=1e-6)] * 2
    assert largest_margin(machines.fit_svm_distances(x, np.where(wrong == 0, 1, -1), 1e4), 0.95) == pytest.approx(
        0.6, abs=1e-6
    )


def test_the_margin_of_a_share_is_the_largest_that_so_many_rows_reach() -> None:
    distances = np.arange(100.0)
    assert (largest_margin(distances, 0.99), largest_margin(distances, 0.96), largest_margin(distances, 1)) == (1, 4, 0)
    assert largest_margin(np.arange(25.0), 0.96) == 1


def test_the_smallest_margin_is_over_classes() -> None:
    x, y = clouds()
    found = margins_of(x, y, (2, 6))
    assert [margins.name for margins in found.classes] == ["a", "b", "c"]
    for share in range(2):
        assert found.smallest[share] == tuple(np.min([margins.margins[share] for margins in found.classes], axis=0))


def test_everything_is_the_same_for_rotated_features() -> None:
    x, y = clouds()
    turned = rotated(x)
    values = spectrum.compute_eigen_decomposition(x, centre=True).values
    assert spectrum.compute_eigen_decomposition(turned, centre=True).values == pytest.approx(values)
    for here, there in zip(
        measure_separability(x, y, NAMES, asked()).pairs,
        measure_separability(turned, y, NAMES, asked()).pairs,
        strict=True,
    ):
        assert there.own == pytest.approx(here.own, abs=1e-4)
        assert there.shared == pytest.approx(here.shared, abs=1e-4)
    assert margins_of(turned, y).smallest[0] == pytest.approx(margins_of(x, y).smallest[0], abs=1e-4)


# What is read


class Untouchable:
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Image.Image:
        raise AssertionError("a test image was read")


@dataclass(frozen=True)
class Tinted(Dataset):
    """Noisy tints; `other` draws the pixels and labels of the named part of the training split anew."""

    name: ClassVar[str] = "tinted"
    classes: ClassVar[tuple[str, ...]] = NAMES
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"

    shown: int = 3
    other: str = ""
    digest: str = "tinted"

    def load(self) -> Splits:
        order = np.random.default_rng(np.random.SeedSequence(0)).permutation(200)  # as data.roles cuts: half is public
        part = {"": order[:0], "public": order[:100], "private": order[100:]}[self.other]
        draw, redraw = np.random.default_rng(0), np.random.default_rng(1)
        labels, noise = np.arange(200) % self.shown, draw.normal(0, 40, (200, 2, 2, 3))
        labels[part], noise[part] = redraw.permutation(labels[part]), redraw.normal(0, 40, (len(part), 2, 2, 3))
        tints = np.random.default_rng(9).integers(40, 216, (12, 1, 1, 3))
        pixels = np.clip(tints[labels] + noise, 0, 255).astype(np.uint8)
        test = Split(Untouchable(), np.zeros(30, dtype=np.int64))
        return Splits(Split([Image.fromarray(pixel) for pixel in pixels], labels), test, self.digest)


@dataclass(frozen=True)
class Shapes(Tinted):
    name: ClassVar[str] = "shapes"
    classes: ClassVar[tuple[str, ...]] = ("round", "square", "else")


@dataclass(frozen=True)
class Flat(Extractor):
    name: ClassVar[str] = "flat"

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image)).float()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.reshape(len(images), 3, 4)  # not flat: an inspection flattens


class Nobody(gallery.Honest):
    name: ClassVar[str] = "public-only"


def registry() -> Registry:
    parts: dict[Any, list[type[Dataset | Extractor | Learner]]] = {
        "dataset": [Tinted, Shapes], "extractor": [Flat], "learner": [Nobody],
    }  # fmt: skip
    return Registry(
        {kind: {cls.name: Registration(cls, "plugin", "wheel", "1") for cls in found} for kind, found in parts.items()}
    )


def inspected(k: Sequence[str] = (), *, read_private: bool = False, pairs: int = 50, **values: Any) -> Inspection:
    values = {"dataset": "tinted", "extractor": "flat", "public_fraction": 0.5, **values}
    if "public_dataset" in values:
        del values["public_fraction"]
    wanted = make_request(spec_of(values), k, read_private=read_private, pairs=pairs, svm_c=10)
    return run_inspection(wanted, session(registry()))


def numbers(found: Inspection) -> dict[str, Any]:
    return found.model_dump(include={"spectrum", "separability", "margins", "examples", "note"})


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Draw a part of the training split anew, behind the same names and digests, and forget cached features."""

    def alter(part: str) -> None:
        load = Tinted.load
        monkeypatch.setattr(Tinted, "load", lambda self: load(replace(self, other=part)))
        monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "altered"))

    return alter


def test_private_examples_do_not_enter_an_inspection_of_public_data(altered: Callable[[str], None]) -> None:
    before = inspected()
    altered("private")
    after = inspected()
    assert numbers(after) == numbers(before)
    assert after.digest == before.digest


def test_public_examples_are_what_is_inspected(altered: Callable[[str], None]) -> None:
    before = inspected()
    altered("public")
    assert numbers(inspected())["spectrum"] != numbers(before)["spectrum"]


def test_reading_private_data_reads_the_private_split_alone(altered: Callable[[str], None]) -> None:
    before = inspected(read_private=True)
    altered("public")
    assert numbers(inspected(read_private=True)) == numbers(before)


def test_reading_private_data_is_marked_and_promises_nothing() -> None:
    public, private = inspected(), inspected(read_private=True)
    assert (public.mark, public.guarantee) == ("", "epsilon 0: reads public data alone")
    assert (private.mark, private.guarantee) == (MARK, "none: reads private data")
    assert numbers(public) != numbers(private)
    assert public.digest != private.digest


def test_features_are_flattened_and_scaled_to_length_1() -> None:
    found = inspected()
    assert (found.examples, found.features, found.asked.k) == (100, 12, (10, 12))
    assert sum(found.spectrum.eigenvalues) < 1  # the mean square length less that of the mean


def test_public_labels_of_other_classes_leave_the_spectrum_alone() -> None:
    found = inspected(public_dataset="shapes:digest=shapes")
    assert found.separability is None
    assert found.margins is None
    assert not found.labels_read
    assert "'shapes' are not those of 'tinted': only the spectrum" in found.note
    assert found.digests == {"private": "tinted", "public": "shapes"}


def test_public_data_of_other_classes_do_not_keep_private_labels_from_being_read() -> None:
    assert inspected(public_dataset="shapes:digest=shapes", read_private=True).labels_read


def test_classes_without_examples_are_counted() -> None:
    assert inspected().note == "9 of 12 classes have no public example."
    assert inspected(dataset="tinted:shown=12").note == ""


def test_of_many_pairs_some_are_drawn() -> None:
    found = inspected(dataset="tinted:shown=12")
    assert found.separability is not None
    assert (len(found.separability.pairs), found.separability.possible) == (50, 66)
    fewer = inspected(pairs=2).separability
    assert fewer is not None and len(fewer.pairs) == 2


def test_options_are_spelled_out() -> None:
    assert inspected().asked.dataset.options == {"shown": 3, "other": "", "digest": "tinted"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset": "tinted:shown=1"}, "of at least two classes, got 100 of 'a' only"),
        ({"public_fraction": 0.0}, "Expected public data to inspect, got none"),
        ({"public_fraction": 0.005}, "got 1 equal rows|at least two classes, got 1"),
        ({"k": ["13"]}, r"--k 13 <= 12: there are no more components than features"),
        ({"public_fraction": 0.05, "k": ["11"]}, r"--k 11 <= 10.* or public examples"),
        *(({"k": [k]}, "--k to be numbers of dimensions >= 1") for k in ("0", "-3", "ten", "10,,20", "2.5", "")),
    ],
)
def test_what_cannot_be_inspected_is_refused(values: dict[str, Any], message: str, refusal: Refusal) -> None:
    assert re.search(message, refusal(lambda: inspected(**values)))


def test_k_may_be_repeated_and_listed() -> None:
    assert inspected(["4,2", "9", "2"]).asked.k == (2, 4, 9)


def test_a_budget_never_stands_in_the_way() -> None:
    assert 0 < asked().spec.delta < 1e-11  # of a split that nobody has


# Files


def test_an_inspection_comes_back_from_its_file(tmp_path: Path) -> None:
    found = inspected()
    file = found.write(tmp_path)
    assert file.name == f"inspection-tinted-flat-{found.digest[:16]}.json"
    assert Inspection.model_validate_json(file.read_text()) == found


@pytest.mark.parametrize("wrong", [{"mark": ""}, {"guarantee": "epsilon 0: reads public data alone"}])
def test_an_inspection_of_private_data_without_its_mark_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="not those of an inspection that reads private data"):
        Inspection(**{**inspected(read_private=True).model_dump(), **wrong})


@pytest.mark.quick(1)
@pytest.mark.parametrize("read_private", [False, True])
@pytest.mark.parametrize("dataset", [{}, {"public_dataset": "shapes:digest=shapes"}], ids=["labelled", "unlabelled"])
def test_an_svg_carries_the_mark_and_axis_labels(tmp_path: Path, read_private: bool, dataset: dict[str, Any]) -> None:
    write_inspection_plot(inspected(read_private=read_private, **dataset), tmp_path / "plot.svg")
    drawing = (tmp_path / "plot.svg").read_text()
    texts = [node.text or "" for node in ET.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert any(MARK.upper() in text for text in texts) == read_private
    assert "variance (unit-length rows)" in texts
    labelled = read_private or not dataset
    assert ("k (dimensions kept)" in texts) == labelled
    assert ("needs labels of these classes" in texts) != labelled
    assert len(drawing) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("read_private", [False, True])
def test_a_png_is_small_and_its_mark_is_coloured(tmp_path: Path, read_private: bool) -> None:
    file = tmp_path / "new" / "plot.PNG"
    write_inspection_plot(inspected(read_private=read_private), file)
    assert file.stat().st_size < 200_000
    with Image.open(file) as image:
        title = np.asarray(image.convert("RGB"))[:25]
    colour = tuple(int(WARNING[at : at + 2], 16) for at in (1, 3, 5))
    assert bool((title == colour).all(-1).any()) == read_private


@pytest.mark.slow
def test_the_same_inspection_gives_the_same_bytes(tmp_path: Path) -> None:
    found = inspected()
    for name in ("first.svg", "second.svg"):
        write_inspection_plot(found, tmp_path / name)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


@pytest.mark.slow
def test_a_large_spectrum_makes_no_large_plot(tmp_path: Path) -> None:
    found = inspected()
    long = found.spectrum.model_copy(update={"eigenvalues": tuple(1 / place for place in range(1, 4000))})
    for name in ("plot.svg", "plot.png"):
        write_inspection_plot(found.model_copy(update={"spectrum": long}), tmp_path / name)
        assert (tmp_path / name).stat().st_size < 200_000


@pytest.mark.slow
def test_names_with_dollars_are_drawn_as_they_are(tmp_path: Path) -> None:
    found = inspected(dataset="tinted:digest=$a_{$b$")
    write_inspection_plot(found, tmp_path / "plot.svg")
    assert "$a_{$b$" in (tmp_path / "plot.svg").read_text()


@pytest.mark.slow
def test_a_plot_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Choose a writable folder"):
        write_inspection_plot(inspected(), tmp_path / "file" / "plot.png")
