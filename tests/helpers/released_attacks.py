"""Run the attacks on released models that the page on audits shows: `python -m tests.helpers.released_attacks FOLDER`.

FOLDER keeps the record of each attack, so that an interrupted call goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from dpbench.audit.released import attack_released_models
from dpbench.docs.tables.released_tables import list_attack_rows, write_attack_rows
from dpbench.records.released import ReleasedModelAttack
from dpbench.records.spec import Spec, make_spec
from tests.helpers.sessions import session

LEARNERS = ("thrift", "public-prior", "pillar", "dp-sgd", "class-means")
EPSILONS = (0.3, 1.0, 8.0, float("inf"))
FEATURES = "efficientnet-lite0:size=128"
DATA = (
    {"dataset": "digits", "public_fraction": 0.1},
    {"dataset": "pneumonia", "extractor": FEATURES, "unit": "image", "train_fraction": 0.3, "public_fraction": 0.1},
    {"dataset": "cifar10", "extractor": FEATURES, "train_fraction": 0.020408, "public_fraction": 0.02},
)


def specs() -> Iterator[Spec]:
    """Yield the spec of each attack."""
    for data in DATA:
        for learner in LEARNERS:
            for epsilon in EPSILONS:
                values = {"learner": learner, "epsilon": epsilon, "delta": 1e-5, "public_labels": True, "seeds": 1}
                yield make_spec({**values, **data}, "the page on audits")


def main(folder: Path) -> None:
    """Run what is missing in the folder, and write the rows of all attacks."""
    opened, attacks = session(threads=1), list[ReleasedModelAttack]()
    for spec in specs():
        file = folder / f"{spec.digest[:16]}.json"
        if not file.exists():
            attack_released_models(opened.prepare(spec)).write_to(file)
        attacks.append(ReleasedModelAttack.read(file))
    write_attack_rows(row for attack in attacks for row in list_attack_rows(attack))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
