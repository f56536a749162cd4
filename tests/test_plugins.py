"""Every built-in component keeps every law, through the same suites that strangers inherit."""

from __future__ import annotations

import os

import pytest
from dpbench_kermany import ARCHIVES, FOLDER

from dpbench import data_folders, registry
from dpbench.testing import DatasetLaws, ExtractorLaws, LearnerLaws, ReferenceLaws

COMPONENTS = registry.load().components
PNEUMONIA = any((folder / place).exists() for folder in data_folders() for place in (*ARCHIVES, FOLDER))


def _built(kind: registry.Kind, name: str, **options: object) -> object:
    return registry.load().build(kind, name, options)


class TestDPSGD(LearnerLaws):
    learner = _built("learner", "dp-sgd")  # type: ignore[assignment]


class TestDPSGDOnSamples(LearnerLaws):
    learner = _built("learner", "dp-sgd", sample_rate=0.2, steps=40, scaling="norm", init="uniform", learning_rate=4.0)  # type: ignore[assignment]


class TestPillar(LearnerLaws):
    learner = _built("learner", "pillar")  # type: ignore[assignment]


class TestPillarUncentred(LearnerLaws):
    learner = _built("learner", "pillar", center=False, scaling="none", k=12)  # type: ignore[assignment]


class TestPillarOnImages(LearnerLaws):
    learner = _built("learner", "pillar", k=12)  # type: ignore[assignment]
    example_shape = (3, 4, 4)


class TestJL(LearnerLaws):
    learner = _built("learner", "jl")  # type: ignore[assignment]


class TestAdaDPS(LearnerLaws):
    learner = _built("learner", "adadps")  # type: ignore[assignment]


class TestDPRAFT(LearnerLaws):
    learner = _built("learner", "dp-raft")  # type: ignore[assignment]


class TestDPRAFTWithPrivateMean(LearnerLaws):
    learner = _built("learner", "dp-raft", private_mean=True, feature_norm=50.0)  # type: ignore[assignment]


class TestPublicOnly(LearnerLaws):
    learner = _built("learner", "public-only")  # type: ignore[assignment]


class TestClassMeans(LearnerLaws):
    learner = _built("learner", "class-means", k=16)  # type: ignore[assignment]


class TestGEP(LearnerLaws):
    learner = _built("learner", "gep", learning_rate=1.0)  # type: ignore[assignment]


class TestGEPWithAWholeBasis(LearnerLaws):
    learner = _built("learner", "gep", k=16, anchors=300, steps=40, learning_rate=1.0)  # type: ignore[assignment]


class TestGEPWithoutResidual(LearnerLaws):
    learner = _built("learner", "gep", k=40, residual=False, steps=40, learning_rate=1.0)  # type: ignore[assignment]


class TestWhitened(LearnerLaws):
    learner = _built("learner", "whitened", k=16)  # type: ignore[assignment]


class TestWhitenedWithoutStudent(LearnerLaws):
    learner = _built("learner", "whitened", k=16, distil=False, whitening=1.0)  # type: ignore[assignment]


class TestNonPrivate(ReferenceLaws):
    learner = _built("learner", "non-private")  # type: ignore[assignment]


class TestDigits(DatasetLaws):
    dataset = _built("dataset", "digits")  # type: ignore[assignment]


class TestPixels(ExtractorLaws):
    extractor = _built("extractor", "pixels")  # type: ignore[assignment]


class TestPixelsResized(ExtractorLaws):
    extractor = _built("extractor", "pixels", size=16, flat=False)  # type: ignore[assignment]


class TestEfficientNetLite0(ExtractorLaws):
    extractor = _built("extractor", "efficientnet-lite0")  # type: ignore[assignment]


if "DPBENCH_DATA" in os.environ:  # the laws need the data, and a law cannot be skipped

    class TestCifar10(DatasetLaws):
        dataset = _built("dataset", "cifar10")  # type: ignore[assignment]


if PNEUMONIA:

    class TestPneumonia(DatasetLaws):
        dataset = _built("dataset", "pneumonia")  # type: ignore[assignment]


def test_no_plugin_of_this_project_is_broken() -> None:
    assert registry.load().broken == ()


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in COMPONENTS.items() for name in names])
def test_every_component_has_a_suite(kind: str, name: str) -> None:
    suites = [suite for suite in globals().values() if isinstance(suite, type) and hasattr(suite, kind)]
    tested = {getattr(suite, kind).name for suite in suites if hasattr(suite, kind)}
    if (name == "cifar10" and "DPBENCH_DATA" not in os.environ) or (name == "pneumonia" and not PNEUMONIA):
        pytest.skip(f"the data of {name} is not on this machine: name its folder in DPBENCH_DATA")
    assert name in tested
