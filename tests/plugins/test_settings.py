"""The settings of built-in components: what each refuses by itself, and that each says what it means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dpbench import SpecError, registry
from dpbench.records.protocol import Component
from dpbench.registry.components import build
from dpbench.support.fields import is_required_field
from dpbench.support.settings import LIMITS, SettingLimits, list_settings

REGISTRY = registry.load()
COMPONENTS = [item.cls for known in REGISTRY.components.values() for item in known.values()]
REFUSED = {
    "learner": """
        adadps:epsilon_c=0 adadps:epsilon_c=inf adadps:refresh=0 class-means:k=0
        dp-finetune:rank=0 dp-finetune:steps=0 dp-finetune:head_share=1 dp-finetune:learning_rate=0
        dp-finetune:momentum=1 dp-finetune:chunk_size=0 dp-finetune:sample_rate=0 dp-finetune:sample_rate=1.5
        dp-finetune:k=0 dp-finetune:learning_rate=inf dp-finetune:head_learning_rate=-1
        dp-finetune:probes=-1 dp-newton:k=0 dp-newton:steps=0 dp-newton:floor=0 dp-newton:share=1 dp-newton:clip=inf
        dp-raft:mean_share=1 dp-raft:feature_norm=0
        dp-randp:phase2_steps=-1 dp-randp:phase3_steps=-1 dp-randp:phase2_learning_rate=0
        dp-randp:phase3_learning_rate=-1 dp-randp:augmult=-1
        dp-sgd-net:learning_rate=0 dp-sgd-net:augmult=-1 dp-sgd-net:padding=-1 dp-sgd-net:momentum=1 dp-sgd-net:ema=1
        gep:k=0 gep:refresh=0 gep:power_iterations=0 gep:learning_rate=0 gep:momentum=1 gep:residual_ratio=0
        jl:k=0 jl-theory:k=0
        least-squares:k=0 least-squares:rounds=0 least-squares:ridge=0 least-squares:clip=inf least-squares:moment=1
        non-private:regularisation=0 non-private:regularisation=-1
        pate:shards=0 pate:queries=0 pate:k=0 pate:threshold=1
        pillar:k=0 pillar:sample_rate=0 pillar:clip=0 pillar:momentum=1 pillar:steps=0
        pillar-theory:k=-1 pillar-theory:steps=0 pillar-theory:beta=1 pillar-theory:margin=0 pillar-theory:xi=1
        prototypes:k=0 prototypes:groups=0 prototypes:groups=1001 prototypes:reach=0 prototypes:reach=1.5
        public-finetune:steps=0 public-finetune:probes=-1 public-only:regularisation=0
        public-origin:k=0 public-origin:steps=0 public-origin:clip=0 public-origin:learning_rate=inf
        public-prior:k=0 public-prior:clip=0 public-prior:clip=-1 public-prior:graph=2 public-prior:whitening=2
        public-prior:strength=0 public-prior:strength=inf public-prior:ridge=-1 public-prior:ridge=inf
        public-tail:passes=0 public-tail:tail_rate=0 self-tail:passes=0 self-tail:tail_rate=inf self-tail:k=0
        scatternet:groups=0 thrift:k=0 thrift:whitening=1.5 thrift:graph=-0.1 thrift:clip=0
        whitened:k=0 whitened:whitening=1.5 whitened:ridge=0 whitened:sharpness=0
    """,
    "extractor": """
        patches:filters=0 patches:patch=1 patches:patch=17 patches:pool=0 patches:threshold=1 patches:power=0
        patches:images=0 patches:seed=1180591620717411303424
        pixels:size=0 pixels:size=2049 randp-wrn16-4:pool=0 resnet50:size=16 scatternet:size=4 scatternet:pool=0
    """,
    "dataset": """
        pathmnist:size=32 pcam:fraction=0 pcam:fraction=-0.1 pcam:fraction=1.1
        theory-blocks:blocks=1 theory-blocks:alpha=0.6 theory-disjunction:d=3 theory-disjunction:p=0
        theory-dummies:octaves=61 theory-incompatible:mixed=2 theory-shifted:eta=-0.1
        theory-gmm:d=1 theory-gmm:theta=-1 theory-gmm:sigma=-1 theory-halfspace2d:n=0 theory-halfspace2d:spread=0
        theory-lowrank:tau=1 theory-lowrank:margin=6 theory-lowrank:s=2 theory-thresholds:middle=2
        theory-thresholds:noise=0.6 theory-thresholds:m=-1 theory-thresholds:test=0 theory-thresholds:seed=-1
    """,
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in REFUSED.items() for text in texts.split()])
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(kind: registry.ComponentKind, text: str) -> None:
    component = Component.parse(text)
    with pytest.raises(SpecError, match=rf"Expected {next(iter(component.options))}=.* {kind} '{component.name}'"):
        build(REGISTRY, kind, component)


def edges(limits: SettingLimits, whole: bool) -> Iterator[float]:
    """Yield values just out of range, and what is no number."""
    below = (lambda bound: bound - 1) if whole else (lambda bound: math.nextafter(bound, -math.inf))
    above = (lambda bound: bound + 1) if whole else (lambda bound: math.nextafter(bound, math.inf))
    bounds = ((limits.ge, below), (limits.gt, float), (limits.le, above), (limits.lt, float))
    numbers = [edge(bound) for bound, edge in bounds if bound is not None]
    yield from map(int, numbers) if whole else numbers
    if numbers:
        yield math.nan


LIMITED = [
    (cls, item.name, item.metadata[LIMITS], value)
    for cls in COMPONENTS
    for item in dataclasses.fields(cls)
    if LIMITS in item.metadata
    for value in edges(item.metadata[LIMITS], str(item.type).startswith("int"))
]


@pytest.mark.parametrize(
    ("cls", "name", "limits", "value"), LIMITED, ids=[f"{cls.name}:{name}={value}" for cls, name, _, value in LIMITED]
)
def test_a_setting_takes_nothing_beyond_the_range_that_it_states(
    cls: Callable[..., Any], name: str, limits: SettingLimits, value: float
) -> None:
    required = {item.name: "x" for item in dataclasses.fields(cls) if is_required_field(item)}  # type: ignore[arg-type]
    with pytest.raises(SpecError) as refused:
        cls(**{**required, name: value})
    assert str(refused.value).startswith(f"Expected {name}=")
    assert str(limits) in str(refused.value)
    assert limits.says in str(refused.value)


def test_every_setting_says_what_it_means() -> None:
    rows = [(cls.name, row) for cls in COMPONENTS for row in list_settings(cls)]
    assert len(rows) > 200
    assert [f"{name}: {row.name}" for name, row in rows if not row.meaning] == []


def test_every_learner_says_where_its_constants_come_from() -> None:
    learners = [item.cls for item in REGISTRY.components["learner"].values()]
    assert [cls.name for cls in learners if not cls.rule_origin] == []
