"""A fitted classifier with the interface of scikit-learn: it takes images and returns classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dpbench.analysis.describe import render_html
from dpbench.data import extraction
from dpbench.data.concat import Concat, concatenate_features
from dpbench.data.decoding import DICOM_ENDING, decode_image
from dpbench.errors import DataError, DpbenchError, SpecError
from dpbench.harness.fit import SeedFit
from dpbench.harness.guarantee import make_unit_facts
from dpbench.harness.loaded import get_component_origins
from dpbench.harness.prepare import PreparedRun, prepare_seed
from dpbench.harness.scoring import predict_all
from dpbench.models import model_file as files
from dpbench.models.card import Card, ExtractorFacts, TestScore
from dpbench.models.export import export_predictor
from dpbench.models.process import ModelGraphFacts, ModelProcess
from dpbench.records import storage
from dpbench.records.result import Result
from dpbench.registry import Registry, load
from dpbench.registry.components import build, make_component_record
from dpbench.support.device import find_device
from dpbench.support.files import MODEL_ENDINGS, write_atomically
from dpbench.support.untrusted import parse_json

if TYPE_CHECKING:
    from PIL.Image import Image

    ImageInput = Sequence[Image | Path | str] | np.ndarray

VECTOR_MODE = "F"  # the mode of a row of `Features`
SCORE_TOLERANCE = 1e-3  # of the scores' spread: what other kernels may round by
EXPECTED_ARRAYS = "Expected images as arrays of whole numbers 0 to 255, (n, height, width) or (n, height, width, 3)"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A fitted classifier from one seed of a run, with `predict`, `decision_function` and `save`; `card` describes it.

    Images are paths, PIL images or arrays of 0 to 255; a model of a run on feature vectors (`dpbench.dataset`) takes
    vectors. A model is post-processing of the fit's output: it costs no privacy beyond the card's guarantee, however
    often you use it.
    """

    card: Card
    content: bytes  # of its file
    plugins: Registry | None = None  # that has the extractor; by default what is installed
    device: str = "auto"

    @property
    def classes_(self) -> np.ndarray:
        """The classes in the order of the score columns: names, or whole numbers if every name is a whole number."""
        names = np.array(self.card.classes)
        return names.astype(np.int64) if all(map(_is_whole_number, self.card.classes)) else names

    @property
    def digest(self) -> str:
        """The SHA-256 of the model's file."""
        return hashlib.sha256(self.content).hexdigest()

    def lines(self) -> list[tuple[str, str]]:
        """Return the card and the model's digest as pairs of heading and text."""
        return [*self.card.lines(), ("model", self.digest)]

    def predict(self, images: ImageInput) -> np.ndarray:
        """Return the class with the highest score for each image, (n,) of `classes_`; ties go to the first class.

        Raises:
            DataError: an image cannot be read, or has another shape than the training images.
            SpecError: the extractor is not installed, or differs from the extractor used in training.
        """
        found: np.ndarray = self.classes_[self.decision_function(images).argmax(1)]
        return found

    def decision_function(self, images: ImageInput) -> np.ndarray:
        """Return scores (n, classes) float64; the highest is the predicted class. Raises the errors of `predict`."""
        with ModelProcess(self.content) as process:  # which starts while features are extracted
            x = (
                self._vectors(images)
                if self.card.mode == VECTOR_MODE
                else self._features(_ImageSequence.from_input(images, self.card.mode))
            )
            if tuple(x.shape[1:]) != self.card.example_shape:
                raise DataError(
                    f"Expected images that give examples of shape {self.card.example_shape}, got {tuple(x.shape[1:])}: "
                    f"the model learned from images of another size. Resize them to those of {self.card.spec.dataset}."
                )
            try:
                _check_graph_fits_card(process.facts, self.card)
                found: np.ndarray = process(x).numpy()
            except DataError as error:
                raise DataError(f"The model cannot predict: {error}.") from error
        return found

    def predict_proba(self, images: ImageInput) -> np.ndarray:
        """Return the softmax of the scores if they are logits. Before you use it, check the result's calibration error.

        Raises:
            SpecError: the learner's scores are not logits; or as for `predict`.
        """
        if not self.card.logits:
            raise SpecError(
                f"The scores of learner {self.card.spec.learner.name!r} are not logits, so they give no "
                "probabilities. Use decision_function."
            )
        return torch.from_numpy(self.decision_function(images)).softmax(1).numpy()

    def score(self, images: ImageInput, y: Sequence[Any] | np.ndarray) -> float:
        """Return the accuracy on images with the labels `y`.

        Raises:
            DataError: the number of labels differs, or a label is not among `classes_`; or as for `predict`.
        """
        found, wanted = self.predict(images), np.asarray(y)
        if wanted.shape != found.shape:
            raise DataError(f"Expected one label per image, got {len(found)} images and labels of {wanted.shape}.")
        known = dict.fromkeys(self.classes_.tolist())
        if unknown := [label for label in wanted.tolist() if label not in known]:
            classes = ", ".join(map(repr, [*known][:10])) + ", ..." * (len(known) > 10)
            raise DataError(f"Expected labels among the classes {classes}, got {unknown[0]!r}.")
        return float((found == wanted).mean())

    def save(self, file: Path | str) -> Path:
        """Write the model, an ONNX graph with its card, to an .onnx file and return its path.

        `dpbench.load_model` reads the file, and any ONNX runtime can run it. A model of version 0.2 is written
        unchanged, to a .safetensors file.

        Raises:
            OutputError: the file cannot be written.
            SpecError: the file's name has another ending.
        """
        place, ending = Path(file), MODEL_ENDINGS[files.detect_model_format(self.content)]
        if place.suffix != ending:
            raise SpecError(f"Expected the name of this model to end in {ending}, got {place}.")
        write_atomically(place, lambda out: out.write(self.content))
        return place

    @classmethod
    def load(cls, file: Path | str, *, device: str = "auto", plugins: Registry | None = None) -> Model:
        """Read a model from a file.

        Raises:
            DataError: the file does not exist, is not a model, or was damaged or changed; or its graph is not
                self-contained, or does not fit its card.
        """
        content = files.read_model_content(Path(file))
        try:
            with ModelProcess(content) as process:
                card = storage.validate_record(
                    Card, parse_json(process.facts.card.encode(), "its card"), "in its metadata"
                )
                _check_graph_fits_card(process.facts, card)
        except DataError as error:
            said = str(error).splitlines()[0].rstrip(".:")
            raise DataError(f"Model {file} cannot be read: {said}.") from error
        return cls(card, content, plugins, device)

    @classmethod
    def from_fit(
        cls, prepared: PreparedRun, fitted: SeedFit, plugins: Registry | None = None, result: Result | None = None
    ) -> Model:
        """Export the predictor of a fit as a model, and check that both give the same scores on the test split.

        `result` is the stored result that the fit repeats, if any.

        Raises:
            SpecError: the predictor cannot be exported; the message says why.
        """
        prepared = prepare_seed(prepared, fitted.result.seed)
        name, task = prepared.learner.name, prepared.roles.task
        card = _make_model_card(prepared, fitted)
        if result is not None:
            card = card.copy_origin(result)
        try:
            graph = export_predictor(fitted.predict, task.example_shape, task.device)
            content = files.build_model_file(graph, card)
            _check_exported_scores(content, fitted, prepared)
        except DpbenchError as error:
            raise SpecError(f"The model of learner {name!r} cannot be kept: {str(error).rstrip('.')}.") from error
        return cls(card, content, plugins, str(task.device))

    @cached_property
    def _device(self) -> torch.device:
        return find_device(self.device)

    @cached_property
    def _built_extractors(self) -> list[Any]:
        extractor = build(self.plugins or load(), "extractor", self.card.extractor)
        parts = list(extractor.parts) if isinstance(extractor, Concat) else [extractor]
        if len(parts) != len(self.card.extractors):
            raise DataError(f"The card has {len(self.card.extractors)} extractors, but {len(parts)} are named in it.")
        for part, learned_with in zip(parts, self.card.extractors, strict=True):
            if not _make_extractor_facts(part).has_same_features(learned_with):
                raise SpecError(
                    f"Extractor {part.name!r} has other weights or another version here than the model learned with "
                    f"(version {learned_with.version}). Install what it names: {_list_extractor_packages(self.card)}."
                )
        return parts

    def _vectors(self, x: Any) -> Tensor:
        if not isinstance(x, np.ndarray):
            raise DataError("Expected an array (n, d): the model learned from vectors, not from images.")
        _check_array_mode(x, VECTOR_MODE)
        return torch.from_numpy(np.ascontiguousarray(x, np.float32))

    def _features(self, images: _ImageSequence) -> Tensor:
        parts = [extraction.embed_images(images, part, self._device) for part in self._built_extractors]
        return parts[0] if len(parts) == 1 else concatenate_features(parts)

    def __repr__(self) -> str:
        return "\n".join([f"Model of {self.card.spec.learner.name}", *(f"  {a}: {b}" for a, b in self.lines())])

    def _repr_html_(self) -> str:
        return render_html(self.lines())


@dataclass(frozen=True)
class _ImageSequence:
    """Images from paths, arrays or PIL images; each is opened on access and converted to the training images' mode."""

    held: Any
    mode: str

    @classmethod
    def from_input(cls, images: Any, mode: str) -> _ImageSequence:
        held = [images] if isinstance(images, str | Path) else images
        if isinstance(held, np.ndarray):
            _check_array_mode(held, mode)
        if not len(held):
            raise DataError("Expected one image or more, got none.")
        return cls(held, mode)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: int, /) -> Image:
        from PIL import Image

        image = self.held[index]
        if isinstance(image, np.ndarray):
            return array_to_image(image)
        if isinstance(image, str | Path):
            try:
                if str(image).lower().endswith(DICOM_ENDING):
                    return decode_image(Path(image).read_bytes(), str(image)).convert(self.mode)
                with Image.open(image) as opened:
                    return opened.convert(self.mode)
            except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
                said = getattr(error, "strerror", None) or str(error).rstrip(".")
                raise DataError(f"Cannot read image {image}: {said}.") from error
        if not isinstance(image, Image.Image):
            raise DataError(f"{EXPECTED_ARRAYS}, paths or PIL images, got a {type(image).__name__} at index {index}.")
        return image if image.mode == self.mode else image.convert(self.mode)


def find_unreadable_images(files: Sequence[Path], mode: str) -> dict[Path, str]:
    """Return the image files that cannot be read in this mode, each with the reason."""
    images, found = _ImageSequence.from_input(files, mode), {}
    for place, file in enumerate(files):
        try:
            images[place]
        except DataError as error:
            found[file] = str(error)
    return found


def array_to_image(values: np.ndarray) -> Image:
    """Convert an array (h, w) or (h, w, 3) with values 0 to 255 to an image."""
    from PIL import Image

    return Image.fromarray(values.astype(np.uint8))


def check_image_values(x: np.ndarray) -> None:
    """Check that an array holds images with values 0 to 255, or finite vectors.

    Raises:
        DataError: the array holds something else; the message says what.
    """
    if x.ndim == 2:
        if not (np.issubdtype(x.dtype, np.number) and bool(np.isfinite(x).all())):
            raise DataError(f"Expected vectors (n, d) of finite numbers, got {x.dtype} with some that are not.")
        return
    colour = x.ndim == 4 and x.shape[3] == 3
    if not (x.ndim == 3 or colour):
        raise DataError(f"{EXPECTED_ARRAYS}, or vectors (n, d), got {x.dtype} of shape {x.shape}.")
    if not np.issubdtype(x.dtype, np.integer) or (x.size and (x.min() < 0 or x.max() > 255)):
        raise DataError(f"{EXPECTED_ARRAYS}, got {x.dtype} from {x.min():g} to {x.max():g}. Scale and round them.")


def _check_array_mode(x: np.ndarray, mode: str) -> None:
    check_image_values(x)
    vectors, wanted = x.ndim == 2, mode == VECTOR_MODE
    if vectors != wanted:
        raise DataError(
            f"Expected {'vectors (n, d)' if wanted else 'images'}, as the model learned from, not {x.shape}."
        )
    colour = x.ndim == 4
    if not vectors and colour != (mode == "RGB"):
        raise DataError(f"Expected {mode} images, as the model learned from, got arrays of shape {x.shape[1:]}.")


def _check_graph_fits_card(facts: ModelGraphFacts, card: Card) -> None:
    """Check that the graph of an untrusted model has the input shape and number of classes that its card states.

    Raises:
        DataError: the graph has another input shape or number of classes.
    """
    if (facts.shape, facts.classes) != (card.example_shape, len(card.classes)):
        raise DataError(
            f"its graph takes examples of shape {facts.shape} and gives {facts.classes} scores, but its card states "
            f"{card.example_shape} and {len(card.classes)} classes"
        )


def _check_exported_scores(content: bytes, fitted: SeedFit, prepared: PreparedRun) -> None:
    """Check on each test image that an exported model gives the scores of the predictor.

    Scores may differ by `SCORE_TOLERANCE` of their standard deviation, so labels can differ only between classes whose
    scores are that close. The predictor must give the labels of the fit's result.

    Raises:
        SpecError: scores differ by more, or the predictor gives other labels.
    """
    task, x = prepared.roles.task, prepared.test.x
    theirs = predict_all(fitted.predict, x, task)
    with ModelProcess(content) as process:
        mine, alone = predict_all(process, x, task), process(x[:1]).numpy()
    allowed = SCORE_TOLERANCE * max(float(theirs.std()), 1e-12)
    off = (np.abs(mine - theirs) > allowed).any(1)  # (n,)
    labels = hashlib.sha256(theirs.argmax(1).astype("<i8").tobytes()).hexdigest()
    if off.any() or (np.abs(mine[:1] - alone) > allowed).any() or labels != fitted.result.predictions:
        raise SpecError(
            "its predictor uses more than tensor operations on each row: exported, it gives "
            f"{off.sum()} of {len(mine)} test images other scores"
        )


def _make_model_card(prepared: PreparedRun, fitted: SeedFit) -> Card:
    spec, parts = prepared.spec, prepared.parts
    chosen = fitted.result.setting or {}
    settings = {**make_component_record(parts.learner).options, **chosen}
    of = parts.extractor.parts if isinstance(parts.extractor, Concat) else (parts.extractor,)
    made = prepared.loaded.provenance
    return Card(
        spec=spec, settings=settings, selection=prepared.rule,
        seed=fitted.result.seed, privacy=prepared.privacy, private_size=prepared.roles.task.size,
        public_size=prepared.roles.task.public,
        left_out=prepared.images.left_out,
        units=make_unit_facts(
            prepared.images.private_units, prepared.images.unit, None if spec.unit else prepared.privacy
        ),
        classes=parts.dataset.classes, mode=prepared.images.mode,
        example_shape=prepared.roles.task.example_shape,
        extractors=tuple(map(_make_extractor_facts, of)), logits=parts.learner.logits,
        test=TestScore(
            examples=len(prepared.test.scorer), accuracy=fitted.result.accuracy, predictions=fitted.result.predictions,
            groups=prepared.test_groups, group_correct=fitted.result.group_correct,
        ),
        licence=parts.dataset.licence, components=get_component_origins(parts),
        provenance={"dpbench": made["dpbench"], "commit": made["commit"], "torch": torch.__version__,
                    "date": datetime.now(UTC).date().isoformat()},
    )  # fmt: skip


def _make_extractor_facts(extractor: Any) -> ExtractorFacts:
    return ExtractorFacts(
        name=extractor.name, version=extractor.version, weights=extractor.weights(),
        trained_on=extractor.trained_on or None, made_elsewhere=extractor.made_elsewhere or None,
    )  # fmt: skip


def _list_extractor_packages(card: Card) -> str:
    return ", ".join(
        sorted(
            {f"{value.distribution} {value.version}" for role, value in card.components.items() if "extractor" in role}
        )
    )


def _is_whole_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) < 19 and str(int(name)) == name  # of 64 bits
