"""Compare the clipping rules at equal ε: `python -m dpbench_lab.clipping.study` writes `record.json`, and resumes.

`thrift` is measured on twelve boards and `dp-sgd` on three of them. For each learner, board and rule, the learning rate
is the best of half, once and twice the default. It is chosen by the mean score of `CHOICE_SEEDS` on a fifth of the
training images, which these fits do not train on. The scores are those of `SEEDS`, trained on all training images, on
the test images. Intervals are over seeds, that is, over noise.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter

from dpbench.harness.fit import fit_and_score_seed
from dpbench.harness.loaded import LoadedRun
from dpbench.harness.prepare import prepare_run
from dpbench.harness.session import Session, open_session
from dpbench.records.result import Interval, mean_interval
from dpbench.records.spec import make_spec
from dpbench.registry import load
from dpbench.support.validation import Record
from dpbench_lab.clipping.rules import ScalingRule, make_learner_with_rule
from dpbench_lab.held_out import hold_out_examples

FILE = Path(__file__).parent / "record.json"
LITE = "efficientnet-lite0:size=128"
BOARDS: Mapping[str, Mapping[str, Any]] = {
    "digits, 1,294": {"dataset": "digits", "extractor": "pixels"},
    "CIFAR-10, 1,000": {
        "dataset": "cifar10", "extractor": LITE, "train_fraction": 0.0204082, "public_fraction": 0.02,
    },
    "chest X-rays, 2,000": {"dataset": "pneumonia", "extractor": LITE, "train_fraction": 0.427},
    "HAM10000, 7,199": {"dataset": "ham10000", "extractor": LITE, "metric": "balanced_accuracy"},
}  # fmt: skip
"""Name of the data, with the number of private images (to within 1%) -> the keys of a spec that select the data."""
EPSILONS = 0.1, 1.0, 8.0
LEARNERS = "dp-sgd", "thrift"
PACES = 0.5, 1.0, 2.0
CHOICE_SEEDS, SEEDS = (0, 1), (2, 3, 4, 5)
RULES: tuple[ScalingRule, ...] = get_args(ScalingRule)


class RuleScores(Record):
    """The scores of a rule on a board, by seed, at the learning rate that was best for it."""

    data: str
    epsilon: float
    learner: str
    rule: ScalingRule
    private: int
    pace: float
    scores: tuple[float, ...]


def list_study_cells() -> list[tuple[str, float, str]]:
    """Return each (data, epsilon, learner) to measure; `dp-sgd` only on the digits, because it is slow elsewhere."""
    cells = itertools.product(BOARDS, EPSILONS, LEARNERS)
    return [(data, epsilon, name) for data, epsilon, name in cells if name != "dp-sgd" or data.startswith("digits")]


def measure_scaling_rules(session: Session, measured: list[RuleScores]) -> Iterator[RuleScores]:
    """Yield the scores of each rule for each board and learner; skip those in `measured`."""
    known = {(row.data, row.epsilon, row.learner, row.rule) for row in measured}
    for (data, epsilon, learner), rule in itertools.product(list_study_cells(), RULES):
        if (data, epsilon, learner, rule) in known:
            continue
        load = partial(_load_run, session, BOARDS[data], epsilon, learner, rule)
        pace = max(PACES, key=lambda pace: _sum_held_out_scores(load(pace)))
        prepared = prepare_run(load(pace))
        scores = tuple(fit_and_score_seed(prepared, seed).value(prepared.spec.metric) for seed in SEEDS)
        yield RuleScores(data=data, epsilon=epsilon, learner=learner, rule=rule, private=prepared.roles.task.size,
                         pace=pace, scores=scores)  # fmt: skip


def _load_run(
    session: Session, protocol: Mapping[str, Any], epsilon: float, learner: str, rule: ScalingRule, pace: float
) -> LoadedRun:
    chosen = {"name": f"{learner}-ruled", "options": {"rule": rule, "pace": pace}}
    given = {**protocol, "epsilon": epsilon, "learner": chosen, "seeds": list(SEEDS), "unit": "image"}
    return session.load(make_spec({**given, "allow_overlap": True}, "clipping study"))


def _sum_held_out_scores(loaded: LoadedRun) -> float:
    """Return the sum of the scores of `CHOICE_SEEDS`, each on its own held-out fifth of the training images."""
    return math.fsum(hold_out_examples(loaded, seed).score(seed).value(loaded.spec.metric) for seed in CHOICE_SEEDS)


def read_scores(file: Path = FILE) -> list[RuleScores]:
    """Return the committed scores."""
    return SCORES.validate_json(file.read_bytes())


def render_table(found: list[RuleScores]) -> str:
    """Return a table: the score of clipping in percent, and the gain of other rules in points, with 95% intervals."""
    lines = [
        f"| data, private images | learner | ε | clip | {' | '.join(RULES[1:])} |",
        f"|---|---|{'---:|' * (1 + len(RULES))}",
    ]
    by_board: dict[tuple[str, str, float], dict[str, RuleScores]] = {}
    for scores in found:
        by_board.setdefault((scores.data, scores.learner, scores.epsilon), {})[scores.rule] = scores
    for (data, learner, epsilon), rules in sorted(by_board.items()):
        gains = (_format_gain(compute_gain_over_clipping(rules[rule], rules["clip"])) for rule in RULES[1:])
        clip = 100 * mean_interval(rules["clip"].scores).mean
        lines.append(f"| {data} | `{learner}` | {epsilon:g} | {clip:.1f} | {' | '.join(gains)} |")
    for learner in sorted({scores.learner for scores in found}):
        rows = [rules for (_, of, _), rules in by_board.items() if of == learner]
        means = (
            mean_interval([compute_gain_over_clipping(rules[rule], rules["clip"]).mean for rules in rows])
            for rule in RULES[1:]
        )
        lines.append(f"| all {len(rows)} | `{learner}` | | | {' | '.join(map(_format_gain, means))} |")
    return "\n".join(lines)


def compute_gain_over_clipping(scores: RuleScores, clipping_scores: RuleScores) -> Interval:
    """Return the mean difference from clipping, paired by seed, with its interval."""
    return mean_interval([mine - other for mine, other in zip(scores.scores, clipping_scores.scores, strict=True)])


def _format_gain(gain: Interval) -> str:
    half = 100 * (gain.high - gain.mean) if gain.high is not None else 0.0
    text = f"{100 * gain.mean:+.1f} ± {half:.1f}"
    return f"**{text}**" if 100 * abs(gain.mean) > half else text


SCORES = TypeAdapter(list[RuleScores])

if __name__ == "__main__":
    plugins = load()
    for name in LEARNERS:
        plugins = plugins.with_component("learner", make_learner_with_rule(plugins.find("learner", name).cls))
    began, measured = time.process_time(), read_scores() if FILE.exists() else []
    for scores in measure_scaling_rules(open_session("cpu", threads=1, plugins=plugins), measured[:]):
        measured.append(scores)
        print(f"{time.process_time() - began:6.0f} s  {scores.data}, ε {scores.epsilon:g}, {scores.learner}: "
              f"{scores.rule} {mean_interval(scores.scores).mean:.4f} at {scores.pace:g}", flush=True)  # fmt: skip
        FILE.write_bytes(SCORES.dump_json(measured, indent=1) + b"\n")
    print(render_table(measured))
