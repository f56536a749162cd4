"""The evidence against honest short runs, by audit: `python -m tests.helpers.honest_audits [AUDITS [FIRST]]`.

They are on digits. Noise, samples and attacks are audited in full; sensitivity is left out, which holds exactly or does
not. Each audit has a seed of its own, so that of 1,000 at most one is expected to raise an alarm.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from statistics import fmean
from unittest.mock import patch

import numpy as np

from dpbench.audit.audit_fit import audit_prepared_run
from dpbench.audit.evidence import ALARM
from dpbench.audit.figures import get_evidence_of_audit
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


def measure_evidence(audits: int, first: int = 0) -> tuple[list[float], Counter[str]]:
    """Return the evidence of each audit, and how often each test failed an honest run or had a small p-value."""
    evidence: list[float] = []
    found: Counter[str] = Counter()
    with patch.multiple(QuestionReplayer, replay=_nothing, probe=_nothing):
        for seed in range(first, first + audits):
            learner = LEARNERS[seed % len(LEARNERS)]
            audit = audit_prepared_run(prepared(learner), 1_000 + seed, CANARIES)
            evidence.append(get_evidence_of_audit(audit))
            found.update(f"{learner}: {line}" for line in audit.figures.failed)
            if audit.noise:
                found.update(f"p < 0.01: {check.name}" for check in audit.noise.checks if check.p < 0.01)
            found["tests"] += len(audit.noise.checks) if audit.noise else 0
            print(f"{len(evidence)} audits, evidence up to {max(evidence):.3g}", end="\r", flush=True)
    return evidence, found


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]] or [300]
    measured, counted = measure_evidence(*given)
    print(f"\nalarms: {sum(e >= ALARM for e in measured)}; mean {fmean(measured):.3g}")
    for share in (0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0):
        print(f"{share:6.0%} log10 e <= {np.quantile(np.log10(measured), share):.2f}")
    for name, times in counted.most_common():
        print(f"{times:6} {name}")
