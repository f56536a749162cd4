"""Every built-in component keeps every law, through the same suites that strangers inherit."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from dpbench_plugins.datasets.kermany import ARCHIVES, FOLDER
from dpbench_plugins.datasets.torchvision import fashion_mnist

from dpbench import DataMissing, Dataset, Extractor, data_folders, registry
from dpbench.records.protocol import Component
from dpbench.testing.checking import SUITES as LAWS
from tests.helpers import trees, weights

REGISTRY = registry.load()
COMPONENTS = REGISTRY.components
CPU = torch.device("cpu")
KYMATIO = find_spec("kymatio") is not None
PNEUMONIA = any((folder / place).exists() for folder in data_folders() for place in (*ARCHIVES, FOLDER))


ELSEWHERE = (
    "cifar10.1", "cifar100", "dermamnist", "dermnet", "fashion-mnist", "flower16", "flowers102", "gtsrb", "ham10000",
    "imagenet", "odir", "pathmnist", "pcam", "pneumoniamnist",
)  # fmt: skip


def _built(kind: registry.ComponentKind, name: str, **options: object) -> object:
    return REGISTRY.build(kind, name, options)


def _extractor(name: str, **options: object) -> Extractor:
    built = _built("extractor", name, **options)
    assert isinstance(built, Extractor)
    return built


def _is_present(name: str) -> bool:
    dataset = _built("dataset", name)
    assert isinstance(dataset, Dataset)
    try:
        dataset.load()
    except DataMissing:
        return False
    return True


PRESENT = {name for name in ELSEWHERE if _is_present(name)}  # their own tests hold them to the laws on small files
SLOW, LONG = pytest.mark.slow, pytest.mark.long
QUICK = {"dp-sgd", "public-only", "prototypes", "class-means:k=16", "digits", "pixels"}
"""The suites of the quick tests: between them, each kind of question to the curator. The others are slow."""
RANDOM_WEIGHTS = pytest.mark.usefixtures("random_weights")
TINY = "network=tiny,sample_rate=0.1,momentum=0.5,padding=0,ema=0.8,chunk_size=150"


class Suite(NamedTuple):
    """A component that is held to every law of its kind."""

    kind: registry.ComponentKind
    text: str  # name and options, as the shell takes them
    marks: tuple[pytest.MarkDecorator, ...] = ()
    example_shape: tuple[int, ...] | None = None

    @property
    def component(self) -> Component:
        return Component.parse(self.text)

    def define(self) -> type:
        """Return the test class, which inherits the laws."""
        members: dict[str, object] = {self.kind: _built(self.kind, self.component.name, **self.component.options)}
        if self.example_shape is not None:
            members["example_shape"] = self.example_shape
        suite = type(f"Test_{re.sub(r'[^a-z0-9]+', '_', self.text)}", (LAWS[self.kind],), members)
        for mark in (*self.marks, *([] if self.text in QUICK else [SLOW])):
            suite = mark(suite)
        return suite


LEARNERS = (
    Suite("learner", "dp-sgd"),
    Suite("learner", "dp-sgd:sample_rate=0.2,steps=40,scaling=norm,init=uniform,learning_rate=4"),
    Suite("learner", "dp-sgd:optimiser=adam,steps=20"),
    Suite("learner", "pillar"),
    Suite("learner", "pillar:center=false,scaling=none,k=12"),
    Suite("learner", "pillar:k=12", example_shape=(3, 4, 4)),
    Suite("learner", "thrift"),
    Suite("learner", "jl"),
    Suite("learner", "adadps"),
    Suite("learner", "dp-raft"),
    Suite("learner", "dp-raft:private_mean=true,feature_norm=50"),
    Suite("learner", "scatternet:groups=4,steps=20,sample_rate=0.5"),
    Suite("learner", "public-only"),
    Suite("learner", "public-prior"),
    Suite("learner", "prototypes"),
    Suite("learner", "prototypes:groups=3,reach=1", example_shape=(3, 4, 4)),
    Suite("learner", "class-means:k=16"),
    Suite("learner", "least-squares:k=16"),
    Suite("learner", "least-squares:k=8,moment=0.3,rounds=4,clip=0.5"),
    Suite("learner", "dp-newton:k=8,steps=4"),
    Suite("learner", "dp-newton:k=8,steps=3,curvature=hessian"),
    Suite("learner", "dp-newton:k=8,steps=3,curvature=public"),
    Suite("learner", "public-origin:steps=10"),
    Suite("learner", "public-origin:steps=10,rule=mixing,start=zero"),
    Suite("learner", "gep:k=20,steps=20,learning_rate=1"),
    Suite("learner", "gep:k=16,anchors=300,steps=12,learning_rate=1"),  # with a whole basis
    Suite("learner", "gep:k=20,residual=false,steps=12,learning_rate=1"),
    Suite("learner", "whitened:k=16"),
    Suite("learner", "whitened:k=16,distil=false,whitening=1"),
    Suite("learner", f"dp-sgd-net:{TINY},steps=10,learning_rate=2,augmult=2", example_shape=(1, 8, 8)),
    Suite(
        "learner", f"dp-randp:{TINY},weights=random,augmult=0,phase2_steps=4,phase3_steps=6", example_shape=(1, 8, 8)
    ),
    Suite("learner", "pillar-theory"),
    Suite("learner", "pillar-theory:k=0,beta=0.4,steps=20"),
    Suite("learner", "pillar-theory:loss=ramp,center=true,radius=public,steps=20"),
    Suite("learner", "jl-theory"),
    Suite("learner", "sspp"),
    Suite("learner", "sspp:hypotheses=thresholds"),
    Suite("learner", "sspp:hypotheses=rectangles"),
    Suite("learner", "sspp:hypotheses=halfplanes", (LONG,)),  # 40 times the candidates of the other classes
    Suite("learner", "sspp-labelled:hypotheses=thresholds"),
    Suite("learner", "component-graph"),
    Suite("learner", "literal-counts"),
    Suite("learner", "pate"),
    Suite("learner", "pate:threshold=0.5,queries=200"),
    Suite("learner", "non-private"),
)
DATASETS = (
    Suite("dataset", "digits"),
    Suite("dataset", "theory-gmm:m=50"),
    Suite("dataset", "theory-lowrank:s=0.3"),
    Suite("dataset", "theory-shifted:eta=0.2,m=50"),
    Suite("dataset", "theory-thresholds:noise=0.1"),
    Suite("dataset", "theory-dummies:m=20"),
    Suite("dataset", "theory-halfspace2d"),
    Suite("dataset", "theory-rectangles"),
    Suite("dataset", "theory-disjunction"),
    Suite("dataset", "theory-incompatible:mixed=0.1"),
    Suite("dataset", "theory-blocks"),
    Suite("dataset", "imagefolder:path=own", (pytest.mark.usefixtures("own_images"),)),
    *(Suite("dataset", name, (LONG,)) for name in sorted(PRESENT)),
)
EXTRACTORS = (
    Suite("extractor", "pixels"),
    Suite("extractor", "pixels:size=16,flat=false"),
    Suite("extractor", "patches:filters=16,images=2,size=16"),
    Suite("extractor", "efficientnet-lite0"),
    Suite("extractor", "efficientnet-lite1:size=64,views=mirror"),
    Suite("extractor", "efficientnet-lite2:size=64,precision=bfloat16"),
    Suite("extractor", "torchvision:resnet18", (RANDOM_WEIGHTS,)),
    Suite("extractor", "resnet50", (RANDOM_WEIGHTS,)),
    Suite("extractor", f"timm:{weights.SMALL}", (RANDOM_WEIGHTS,)),
    Suite("extractor", "checkpoint:resnet18.pth,arch=resnet18", (RANDOM_WEIGHTS,)),
    Suite("extractor", "randp-wrn16-4:path=randp.safetensors", (RANDOM_WEIGHTS,)),
    Suite("extractor", "randp-resnet9:path=randp-resnet9.safetensors", (RANDOM_WEIGHTS,)),
)
OPTIONAL = (  # a law cannot be skipped: these are defined where what they need is on this machine
    (Suite("extractor", "scatternet"), KYMATIO),
    (Suite("extractor", "scatternet:size=28,grey=true,pool=7"), KYMATIO),
    (Suite("dataset", "cifar10"), "DPBENCH_DATA" in os.environ),
    (Suite("dataset", "hf:uoft-cs/cifar10"), "DPBENCH_DATA" in os.environ),
    (Suite("dataset", "pneumonia", (LONG,)), PNEUMONIA),
)
SUITES = (*LEARNERS, *DATASETS, *EXTRACTORS, *(suite for suite, possible in OPTIONAL if possible))
for _suite in map(Suite.define, SUITES):
    globals()[_suite.__name__] = _suite


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


OWN_SUITE = {
    "dp-finetune", "public-finetune", "public-tail", "self-tail",  # need a tail: tests/plugins/learners/ has their laws
    "pack",  # has no features of the images of the laws
    "randp-wrn40-4",  # has the code of randp-wrn16-4, and tests/plugins/extractors/ tests its layers
}  # fmt: skip
# These differ from a suite above by a name that is looked up, not by code, and a ResNet-50 is slow: one test for each.
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


@pytest.fixture
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small images in class folders where the suite below looks."""
    trees.lay_out(tmp_path / "own", trees.planted(["train/cat", "train/dog", "test/cat", "test/dog"], 2))
    monkeypatch.chdir(tmp_path)


def test_no_plugin_of_this_project_is_broken() -> None:
    assert REGISTRY.broken == ()


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in COMPONENTS.items() for name in names])
def test_every_component_has_a_suite(kind: str, name: str) -> None:
    tested = {suite.component.name for suite in SUITES if suite.kind == kind}
    absent = {suite.component.name for suite, possible in OPTIONAL if suite.kind == kind and not possible}
    if name in absent | (set(ELSEWHERE) - PRESENT):
        pytest.skip(f"the data of {name} is not on this machine: name its folder in DPBENCH_DATA")
    assert name in tested | SAME_CODE | OWN_SUITE


@pytest.mark.parametrize("name", ELSEWHERE)
def test_missing_data_is_said(name: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", data_folder)
    dataset = _built("dataset", name)
    assert isinstance(dataset, Dataset)
    with pytest.raises(DataMissing):
        dataset.load()
