"""Every built-in component keeps every law, through the same suites that strangers inherit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from dpbench_plugins.datasets.kermany import ARCHIVES, FOLDER
from dpbench_plugins.datasets.torchvision import fashion_mnist

from dpbench import DataMissing, Dataset, Extractor, data_folders, registry
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws
from tests.helpers import trees, weights

COMPONENTS = registry.load().components
CPU = torch.device("cpu")
KYMATIO = find_spec("kymatio") is not None
PNEUMONIA = any((folder / place).exists() for folder in data_folders() for place in (*ARCHIVES, FOLDER))


ELSEWHERE = (
    "cifar10.1", "cifar100", "dermamnist", "dermnet", "fashion-mnist", "flower16", "flowers102", "gtsrb", "ham10000",
    "imagenet", "odir", "pathmnist", "pcam", "pneumoniamnist",
)  # fmt: skip


SMALL_NETWORK: dict[str, object] = {
    "network": "tiny", "sample_rate": 0.1, "momentum": 0.5, "padding": 0, "ema": 0.8, "chunk_size": 150,
}  # fmt: skip


OTHER_SETTINGS = NETWORK = pytest.mark.slow
"""The quick tests hold each learner to the laws at one setting, and a network's own tests to some of them."""


def _built(kind: registry.Kind, name: str, **options: object) -> object:
    return registry.load().build(kind, name, options)


def _extractor(name: str, **options: object) -> Extractor:
    built = _built("extractor", name, **options)
    assert isinstance(built, Extractor)
    return built


def _present(name: str) -> bool:
    dataset = _built("dataset", name)
    assert isinstance(dataset, Dataset)
    try:
        dataset.load()
    except DataMissing:
        return False
    return True


class TestDPSGD(LearnerLaws):
    learner = _built("learner", "dp-sgd")  # type: ignore[assignment]


class TestDPSGDOnSamples(LearnerLaws):
    learner = _built("learner", "dp-sgd", sample_rate=0.2, steps=40, scaling="norm", init="uniform", learning_rate=4.0)  # type: ignore[assignment]


class TestDPSGDByAdam(LearnerLaws):
    learner = _built("learner", "dp-sgd", optimiser="adam", steps=20)  # type: ignore[assignment]


class TestPillar(LearnerLaws):
    learner = _built("learner", "pillar")  # type: ignore[assignment]


class TestThrift(LearnerLaws):
    learner = _built("learner", "thrift")  # type: ignore[assignment]


@OTHER_SETTINGS
class TestPillarUncentred(LearnerLaws):
    learner = _built("learner", "pillar", center=False, scaling="none", k=12)  # type: ignore[assignment]


@OTHER_SETTINGS
class TestPillarOnImages(LearnerLaws):
    learner = _built("learner", "pillar", k=12)  # type: ignore[assignment]
    example_shape = (3, 4, 4)


class TestJL(LearnerLaws):
    learner = _built("learner", "jl")  # type: ignore[assignment]


class TestAdaDPS(LearnerLaws):
    learner = _built("learner", "adadps")  # type: ignore[assignment]


class TestDPRAFT(LearnerLaws):
    learner = _built("learner", "dp-raft")  # type: ignore[assignment]


@OTHER_SETTINGS
class TestDPRAFTWithPrivateMean(LearnerLaws):
    learner = _built("learner", "dp-raft", private_mean=True, feature_norm=50.0)  # type: ignore[assignment]


class TestScatterNetLinear(LearnerLaws):
    learner = _built("learner", "scatternet", groups=4, steps=20, sample_rate=0.5)  # type: ignore[assignment]


class TestPublicOnly(LearnerLaws):
    learner = _built("learner", "public-only")  # type: ignore[assignment]


class TestPublicPrior(LearnerLaws):
    learner = _built("learner", "public-prior")  # type: ignore[assignment]


class TestPrototypes(LearnerLaws):
    learner = _built("learner", "prototypes")  # type: ignore[assignment]


class TestPrototypesOfImages(LearnerLaws):
    learner = _built("learner", "prototypes", groups=3, reach=1.0)  # type: ignore[assignment]
    example_shape = (3, 4, 4)


class TestClassMeans(LearnerLaws):
    learner = _built("learner", "class-means", k=16)  # type: ignore[assignment]


class TestLeastSquares(LearnerLaws):
    learner = _built("learner", "least-squares", k=16)  # type: ignore[assignment]


class TestLeastSquaresWithAPrivateMoment(LearnerLaws):
    learner = _built("learner", "least-squares", k=8, moment=0.3, rounds=4, clip=0.5)  # type: ignore[assignment]


class TestGEP(LearnerLaws):
    learner = _built("learner", "gep", k=20, steps=20, learning_rate=1.0)  # type: ignore[assignment]


@OTHER_SETTINGS
class TestGEPWithAWholeBasis(LearnerLaws):
    learner = _built("learner", "gep", k=16, anchors=300, steps=12, learning_rate=1.0)  # type: ignore[assignment]


@OTHER_SETTINGS
class TestGEPWithoutResidual(LearnerLaws):
    learner = _built("learner", "gep", k=20, residual=False, steps=12, learning_rate=1.0)  # type: ignore[assignment]


class TestWhitened(LearnerLaws):
    learner = _built("learner", "whitened", k=16)  # type: ignore[assignment]


@OTHER_SETTINGS
class TestWhitenedWithoutStudent(LearnerLaws):
    learner = _built("learner", "whitened", k=16, distil=False, whitening=1.0)  # type: ignore[assignment]


@NETWORK
class TestDPSGDNet(LearnerLaws):
    learner = _built("learner", "dp-sgd-net", **SMALL_NETWORK, steps=10, learning_rate=2.0, augmult=2)  # type: ignore[assignment]
    example_shape = (1, 8, 8)


@NETWORK
class TestDPRandP(LearnerLaws):
    learner = _built(  # type: ignore[assignment]
        "learner", "dp-randp", **SMALL_NETWORK, weights="random", augmult=0, phase2_steps=4, phase3_steps=6
    )
    example_shape = (1, 8, 8)


class TestPillarTheory(LearnerLaws):
    learner = _built("learner", "pillar-theory")  # type: ignore[assignment]


@OTHER_SETTINGS
class TestPillarTheoryWithoutProjection(LearnerLaws):
    learner = _built("learner", "pillar-theory", k=0, beta=0.4, steps=20)  # type: ignore[assignment]


@OTHER_SETTINGS
class TestPillarTheoryWithARamp(LearnerLaws):
    learner = _built("learner", "pillar-theory", loss="ramp", center=True, radius="public", steps=20)  # type: ignore[assignment]


class TestRandomTheory(LearnerLaws):
    learner = _built("learner", "jl-theory")  # type: ignore[assignment]


class TestSSPPOfStumps(LearnerLaws):
    learner = _built("learner", "sspp")  # type: ignore[assignment]


class TestSSPPOfThresholds(LearnerLaws):
    learner = _built("learner", "sspp", hypotheses="thresholds")  # type: ignore[assignment]


class TestSSPPOfRectangles(LearnerLaws):
    learner = _built("learner", "sspp", hypotheses="rectangles")  # type: ignore[assignment]


@pytest.mark.long  # 40 times the candidates of the other classes
class TestSSPPOfHalfPlanes(LearnerLaws):
    learner = _built("learner", "sspp", hypotheses="halfplanes")  # type: ignore[assignment]


class TestComponentGraph(LearnerLaws):
    learner = _built("learner", "component-graph")  # type: ignore[assignment]


class TestLiteralCounts(LearnerLaws):
    learner = _built("learner", "literal-counts")  # type: ignore[assignment]


class TestPATE(LearnerLaws):
    learner = _built("learner", "pate")  # type: ignore[assignment]


@OTHER_SETTINGS
class TestPATEWhereConfident(LearnerLaws):
    learner = _built("learner", "pate", threshold=0.5, queries=200)  # type: ignore[assignment]


class TestNonPrivate(LearnerLaws):
    learner = _built("learner", "non-private")  # type: ignore[assignment]


class TestDigits(DatasetLaws):
    dataset = _built("dataset", "digits")  # type: ignore[assignment]


class TestGaussianMixture(DatasetLaws):
    dataset = _built("dataset", "theory-gmm", m=50)  # type: ignore[assignment]


class TestLowRank(DatasetLaws):
    dataset = _built("dataset", "theory-lowrank", s=0.3)  # type: ignore[assignment]


class TestThresholds(DatasetLaws):
    dataset = _built("dataset", "theory-thresholds", noise=0.1)  # type: ignore[assignment]


class TestHalfPlane(DatasetLaws):
    dataset = _built("dataset", "theory-halfspace2d")  # type: ignore[assignment]


class TestRectangles(DatasetLaws):
    dataset = _built("dataset", "theory-rectangles")  # type: ignore[assignment]


class TestDisjunction(DatasetLaws):
    dataset = _built("dataset", "theory-disjunction")  # type: ignore[assignment]


class TestBlocks(DatasetLaws):
    dataset = _built("dataset", "theory-blocks")  # type: ignore[assignment]


class TestPixels(ExtractorLaws):
    extractor = _built("extractor", "pixels")  # type: ignore[assignment]


class TestPixelsResized(ExtractorLaws):
    extractor = _built("extractor", "pixels", size=16, flat=False)  # type: ignore[assignment]


class TestPatches(ExtractorLaws):
    extractor = _built("extractor", "patches", filters=16, images=2, size=16)  # type: ignore[assignment]


class TestEfficientNetLite0(ExtractorLaws):
    extractor = _built("extractor", "efficientnet-lite0")  # type: ignore[assignment]


class TestEfficientNetLite1(ExtractorLaws):
    extractor = _built("extractor", "efficientnet-lite1", size=64, views="mirror")  # type: ignore[assignment]


class TestEfficientNetLite2(ExtractorLaws):
    extractor = _built("extractor", "efficientnet-lite2", size=64, precision="bfloat16")  # type: ignore[assignment]


@pytest.fixture(scope="module")
def random_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("weights")
    weights.save_all(folder)
    yield folder
    shutil.rmtree(folder)  # 150 MB that pytest would keep for three sessions


@pytest.fixture
def random_weights(random_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put random weights of the published formats where the extractors look."""
    monkeypatch.setenv("DPBENCH_DATA", str(random_files))
    weights.publish_all(monkeypatch, random_files)


@pytest.mark.usefixtures("random_weights")
class TestTorchVision(ExtractorLaws):
    extractor = _built("extractor", "torchvision", model="resnet18")  # type: ignore[assignment]


@pytest.mark.slow
@pytest.mark.usefixtures("random_weights")
class TestResNet50(ExtractorLaws):
    extractor = _built("extractor", "resnet50")  # type: ignore[assignment]


@pytest.mark.usefixtures("random_weights")
class TestTimm(ExtractorLaws):
    extractor = _built("extractor", "timm", model=weights.SMALL)  # type: ignore[assignment]


@pytest.mark.usefixtures("random_weights")
class TestCheckpoint(ExtractorLaws):
    extractor = _built("extractor", "checkpoint", path="resnet18.pth", arch="resnet18")  # type: ignore[assignment]


@pytest.mark.usefixtures("random_weights")
class TestRandP(ExtractorLaws):
    extractor = _built("extractor", "randp-wrn16-4", path="randp.safetensors")  # type: ignore[assignment]


OWN_SUITE = {"dp-finetune"}  # needs a tail: tests/plugins/learners/test_finetune.py has its laws
# These differ from a class above by a name that is looked up, not by code, and a ResNet-50 is slow: one test for each.
SAME_CODE = {"resnet50-ssl", "resnet50-swsl", "resnet50-byol", "resnet50-mocov2", "resnet50-mocov3"}


@pytest.mark.long
@pytest.mark.usefixtures("random_weights")
@pytest.mark.parametrize("name", sorted(SAME_CODE))
def test_every_resnet50_with_the_same_weights_gives_the_same_features(name: str) -> None:
    options = {"path": "resnet50.pth"} if name[9:] in {"byol", "mocov2", "mocov3"} else {}
    found, expected = (
        built.open(CPU)(built.prepare(weights.image())[None])
        for built in (_extractor(name, **options), _extractor("resnet50"))
    )
    assert found.shape == (1, 2048)
    assert weights.same(found, expected)


if KYMATIO:

    class TestScatterNet(ExtractorLaws):
        extractor = _built("extractor", "scatternet")  # type: ignore[assignment]

    class TestScatterNetPooled(ExtractorLaws):
        extractor = _built("extractor", "scatternet", size=28, grey=True, pool=7)  # type: ignore[assignment]


if "DPBENCH_DATA" in os.environ:  # the laws need the data, and a law cannot be skipped

    @pytest.mark.slow
    class TestCifar10(DatasetLaws):
        dataset = _built("dataset", "cifar10")  # type: ignore[assignment]

    @pytest.mark.slow
    class TestHuggingFace(DatasetLaws):
        dataset = _built("dataset", "hf", id="uoft-cs/cifar10")  # type: ignore[assignment]


if PNEUMONIA:

    @pytest.mark.long
    class TestPneumonia(DatasetLaws):
        dataset = _built("dataset", "pneumonia")  # type: ignore[assignment]


@pytest.fixture
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small images in class folders where the suite below looks."""
    trees.lay_out(tmp_path / "own", trees.planted(["train/cat", "train/dog", "test/cat", "test/dog"], 2))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own_images")
class TestImageFolder(DatasetLaws):
    dataset = _built("dataset", "imagefolder", path="own")  # type: ignore[assignment]


PRESENT = {name for name in ELSEWHERE if _present(name)}  # their own tests hold them to the laws on small files
for _name in PRESENT:
    _suite = type(f"Test_{_name}", (DatasetLaws,), {"dataset": _built("dataset", _name)})
    globals()[f"Test_{_name}"] = pytest.mark.long(_suite)  # each has the laws in its own tests too, on small files


def test_no_plugin_of_this_project_is_broken() -> None:
    assert registry.load().broken == ()


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in COMPONENTS.items() for name in names])
def test_every_component_has_a_suite(kind: str, name: str) -> None:
    suites = [suite for suite in globals().values() if isinstance(suite, type) and hasattr(suite, kind)]
    tested = {getattr(suite, kind).name for suite in suites if hasattr(suite, kind)}
    absent = set(ELSEWHERE) - PRESENT
    absent |= {"cifar10", "hf"} if "DPBENCH_DATA" not in os.environ else set()
    absent |= {"pneumonia"} if not PNEUMONIA else set()
    absent |= {"scatternet"} if not KYMATIO else set()
    if name in absent:
        pytest.skip(f"the data of {name} is not on this machine: name its folder in DPBENCH_DATA")
    assert name in tested | SAME_CODE | OWN_SUITE


@pytest.mark.parametrize("name", ELSEWHERE)
def test_missing_data_is_said(name: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", data_folder)
    dataset = _built("dataset", name)
    assert isinstance(dataset, Dataset)
    with pytest.raises(DataMissing):
        dataset.load()
