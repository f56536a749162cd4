"""Charts on a learner's page: the price of privacy, part by part."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence

from dpbench.analysis.columns import format_epsilon
from dpbench.board.folder import read_json_object, validate_record
from dpbench.errors import DataError, MalformedFile
from dpbench.records.metrics import TITLES
from dpbench.site.context import SiteContext
from dpbench.site.picture import Chart, render_inline_svg
from dpbench_lab.explain.chart import draw_explanation, list_stage_gains
from dpbench_lab.explain.explanation import Explanation

EXPLANATIONS = "explanations"


def make_learner_chart_lister(site: SiteContext) -> Callable[[str], Iterable[Chart]]:
    """Read all explanations of a leaderboard; return a function that yields the charts of a learner.

    Raises:
        DataError: a file is not an explanation.
    """
    return functools.partial(_make_charts, _read_explanations(site))


def _read_explanations(site: SiteContext) -> list[Explanation]:
    """Return the explanations that `dpbench explain --out` wrote into the leaderboard's folder.

    Raises:
        DataError: a file there is not an explanation.
    """
    found = []
    for file in sorted((site.root / EXPLANATIONS).rglob("*.json")):
        try:
            found.append(validate_record(Explanation, read_json_object(file)))
        except MalformedFile as error:
            raise DataError(
                f"Expected an explanation in {file}, at {error.field}: {error.said}. Make it again."
            ) from None
    return found


def _make_charts(found: Sequence[Explanation], name: str) -> Iterator[Chart]:
    """Yield a chart of the parts of a learner's price of privacy for each explanation of the learner."""
    for number, explanation in enumerate(found):
        mine = tuple(each for each in explanation.learners if each.learner.name == name)
        if mine:
            alone = explanation.model_copy(update={"learners": mine})
            spec, key = explanation.specs[0], f"explain-{number}"
            title = f"What each part of privacy costs: {spec.dataset.name}, {spec.extractor.names}"
            rows = tuple(
                (each.learner.name, format_epsilon(each.epsilon), stage, f"{after - before:+.2f}")
                for each in mine
                for stage, before, after in list_stage_gains(each)
            )
            drawn = render_inline_svg(
                functools.partial(draw_explanation, alone, titled=False), key, f"{title}. The table has the numbers."
            )
            note = (
                f"{TITLES[explanation.metric]} gained when noise, clipping and other limits are removed one after "
                "another. Only the private run has a guarantee."
            )
            yield Chart(key, title, note, drawn, ("Learner", "ε", "Removed", "points"), rows)
