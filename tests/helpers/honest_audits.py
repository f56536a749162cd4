"""How many audits of honest runs are doubted, of short runs: `python -m tests.helpers.honest_audits [AUDITS [FIRST]]`.

They are on digits. Noise, samples and attacks are audited in full; sensitivity is left out, which holds exactly or does
not. Each audit has a seed of its own, so that of 1,000 at most one is expected to be doubted.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from unittest.mock import patch

from dpbench.audit.audit_fit import audit_prepared
from dpbench.audit.sensitivity import QuestionReplayer
from dpbench.harness.prepare import PreparedRun
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session

LEARNERS = (
    "dp-sgd:steps=12", "dp-sgd:steps=12,sample_rate=0.3", "pillar:steps=8,k=20", "gep:steps=6,k=20", "adadps:steps=6",
    "class-means", "thrift", "dp-sgd:steps=40,sample_rate=0.05", "dp-raft:steps=6,private_mean=true", "dp-sgd:steps=2",
    "least-squares:k=20,rounds=3,moment=0.2",
)  # fmt: skip
CANARIES = 4_000


def _nothing(*_: object) -> None:
    pass


@cache
def prepared(learner: str) -> PreparedRun:
    """Return the run of one learner."""
    values = {"learner": learner, "dataset": "digits", "public_labels": True, "seeds": 1}
    return session().prepare(make_spec(values, "a test"))


def count_doubted(audits: int, first: int = 0) -> Counter[str]:
    """Return how often each test failed an honest run, and how many runs were `doubted`."""
    found: Counter[str] = Counter()
    with patch.multiple(QuestionReplayer, replay=_nothing, probe=_nothing):
        for seed in range(first, first + audits):
            learner = LEARNERS[seed % len(LEARNERS)]
            audit = audit_prepared(prepared(learner), 1_000 + seed, CANARIES)
            found["doubted"] += not audit.passed
            found.update(f"{learner}: {line}" for line in audit.figures.failed)
            if audit.noise:
                found.update(f"p < 0.01: {check.name}" for check in audit.noise.checks if check.p < 0.01)
            found["tests"] += len(audit.noise.checks) if audit.noise else 0
            print(f"{seed + 1 - first} audits, {found['doubted']} doubted", end="\r", flush=True)
    return found


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]] or [300]
    counted = count_doubted(*given)
    print()
    for name, times in counted.most_common():
        print(f"{times:6} {name}")
