"""What a fit is: all that decides what it asks and what it is answered, in one digest. No torch here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dpbench.privacy import MECHANISM
from dpbench.records.result import Brought, PlannedChoice, PlannedRelease
from dpbench.records.spec import Spec
from dpbench.support.files import canonical_digest

NAMED = frozenset({
    "efficientnet-lite0 1 579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "efficientnet-lite1 1 77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    "efficientnet-lite2 1 9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "randp-wrn16-4 1 e38455b4d4b6e3c97c2b902f33e81a60341979c34fcdd994bfb4fc5c9f2446ca",
})  # fmt: skip
"""Weights that a name has stood for since before weights were a part of an identity: name, version and digest.
One for each name, so that leaving them out tells the same fits apart, and results of then can still be repeated."""


def identity(
    spec: Spec, plan: Sequence[PlannedRelease | PlannedChoice], digests: Mapping[str, str],
    components: Mapping[str, Brought], networks: Sequence[str],
) -> str:  # fmt: skip
    """Return the SHA-256 that research noise is derived from, next to a seed: only equal questions share noise.

    Whatever changes a sum, or the noise's scale, changes the identity: the learner and its settings, the budget, sigma
    of each release, the data, the weights of extractors, plugins and their versions, dpbench's own mechanism. Two
    answers of one identity and seed are equal, so that subtracting them tells nothing. Seeds are told apart by the
    streams.

    Args:
        spec: with the settings that are fitted.
        plan: with sigma; empty where each setting of a search has its own.
        digests: of the data.
        components: who brought what.
        networks: name, version and digest of the weights of each extractor that has any.
    """
    asked = json.loads(spec.model_dump_json(exclude={"seeds", "secure_rng"}))
    releases = [one.model_dump(mode="json") for one in plan]
    versions = {role: one.model_dump() for role, one in components.items()}
    others = [network for network in networks if network not in NAMED]
    return canonical_digest([MECHANISM, asked, releases, dict(digests), versions, *([others] if others else [])])
