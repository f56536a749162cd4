"""The identity of a fit and of a learner. No torch here.

A fit is identified by a digest of everything that decides its questions and answers. A learner is identified by its
name, the distribution that provides it, and the digest of its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpbench.privacy import MECHANISM
from dpbench.records.provenance import HARNESS
from dpbench.records.result import ComponentOrigin, Result
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PlannedQuestion
from dpbench.support.files import canonical_digest


def compute_fit_identity(
    spec: Spec, plan: Sequence[PlannedQuestion], digests: Mapping[str, str],
    components: Mapping[str, ComponentOrigin], networks: Sequence[str],
) -> str:  # fmt: skip
    """Return the SHA-256 that, with a seed, determines the research noise, so that only equal questions share noise.

    Everything that changes a sum or the noise scale changes the identity: the learner and its settings, the budget,
    sigma of each release, the data, the weights of extractors, plugins and their versions, and dpbench's own mechanism.
    Two answers with the same identity and seed are equal, so their difference reveals nothing. Each seed has its own
    noise stream.

    Args:
        spec: the spec, with the settings of the fit.
        plan: the plan, with sigmas; empty if each setting of a search has its own plan.
        digests: digests of the data.
        components: the plugin and version of each component.
        networks: name, version and digest of the weights of each extractor that has weights.
    """
    asked = json.loads(spec.model_dump_json(exclude={"seeds", "secure_rng", "allow_overlap"}))
    releases = [use.model_dump(mode="json") for use in plan]
    versions = {role: value.model_dump() for role, value in components.items()}
    return canonical_digest([MECHANISM, asked, releases, dict(digests), versions, *networks])


@dataclass(frozen=True, order=True)
class LearnerIdentity:
    """The identity of a learner. A name alone is no identity, because any distribution can use it."""

    name: str
    distribution: str
    source: str  # digest of its code; empty for dpbench's own, whose versions are one learner

    @property
    def comes_with_dpbench(self) -> bool:
        """Whether the learner comes with dpbench."""
        return self.distribution == HARNESS

    @property
    def family(self) -> str:
        """A key of the family that a multiple-testing correction counts once.

        A family is one learner of dpbench, or all learners of another distribution. The key of a distribution ends in a
        space, so that it differs from a learner of dpbench with the same name.
        """
        return self.name if self.comes_with_dpbench else f"{normalise_distribution(self.distribution)} "


def normalise_distribution(name: str) -> str:
    """Return the name of a distribution as package indexes normalise it.

    >>> normalise_distribution("My_Learner")
    'my-learner'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def identify_learner(result: Result) -> LearnerIdentity:
    """Return the identity of a result's learner, as the result states it."""
    distribution = result.components["learner"].distribution
    source = "" if distribution == HARNESS else find_learner_digest(result.provenance)
    return LearnerIdentity(result.spec.learner.name, distribution, source)


def find_learner_digest(provenance: Mapping[str, object]) -> str:
    """Return the digest of the learner's code in the provenance of a record; empty if it has none."""
    return find_code_digest(provenance, "learner")


def find_code_digest(provenance: Mapping[str, object], role: str) -> str:
    """Return the digest of a component's code in the provenance of a record; empty if it has none."""
    code = provenance.get("code")
    return str(code.get(role) or "") if isinstance(code, Mapping) else ""


def label_learners(learners: Iterable[LearnerIdentity]) -> dict[LearnerIdentity, str]:
    """Return a distinct label for each learner; only learners of dpbench have their name alone as label.

    >>> mine, theirs = LearnerIdentity("thrift", HARNESS, ""), LearnerIdentity("thrift", "dpbench-pro", "1a2b3c4d5e")
    >>> sorted(label_learners([mine, theirs]).values())
    ['thrift', 'thrift (dpbench-pro)']
    >>> sorted(label_learners([theirs, LearnerIdentity("thrift", "dpbench-pro", "ffff000000")]).values())
    ['thrift (dpbench-pro, code 1a2b3c4d)', 'thrift (dpbench-pro, code ffff0000)']
    """
    every = set(learners)
    shared = [(learner.name, learner.distribution) for learner in every]
    found = {}
    for learner in sorted(every):
        code = f", code {learner.source[:8]}" * (shared.count((learner.name, learner.distribution)) > 1)
        found[learner] = (
            learner.name if learner.comes_with_dpbench else f"{learner.name} ({learner.distribution}{code})"
        )
    return found
