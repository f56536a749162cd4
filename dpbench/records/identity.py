"""The identity of a fit: a digest of everything that decides its questions and answers. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dpbench.privacy import MECHANISM
from dpbench.records.result import ComponentOrigin
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PlannedUse
from dpbench.support.files import canonical_digest


def compute_fit_identity(
    spec: Spec, plan: Sequence[PlannedUse], digests: Mapping[str, str],
    components: Mapping[str, ComponentOrigin], networks: Sequence[str],
) -> str:  # fmt: skip
    """Return the SHA-256 from which, with a seed, the research noise is drawn: only equal questions share noise.

    Everything that changes a sum or the noise scale changes the identity: the learner and its settings, the budget,
    sigma of each release, the data, the weights of extractors, plugins and their versions, and dpbench's own mechanism.
    Two answers with the same identity and seed are equal, so their difference reveals nothing. Each seed has its own
    noise stream.

    Args:
        spec: with the settings that are fitted.
        plan: with sigma; empty if each setting of a search has its own plan.
        digests: digests of the data.
        components: the plugin and version of each component.
        networks: name, version and digest of the weights of each extractor that has weights.
    """
    asked = json.loads(spec.model_dump_json(exclude={"seeds", "secure_rng", "allow_overlap"}))
    releases = [use.model_dump(mode="json") for use in plan]
    versions = {role: value.model_dump() for role, value in components.items()}
    return canonical_digest([MECHANISM, asked, releases, dict(digests), versions, *networks])
