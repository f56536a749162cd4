"""The parts that charts share: what a series looks like, how far an axis goes, what is said beside it.

A chart is a Vega-Lite specification made by Altair, whose data are put in as rows with words made ready: pages compute
nothing. Colours are Okabe and Ito's, and each series has a shape too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpbench.board.index import Entry, Standing
from dpbench.board.site import text, view
from dpbench.board.site.words import TITLES
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval

if TYPE_CHECKING:
    import altair as alt

# Without yellow and black, which vanish on white and on black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A8A8A")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
SERIES = 16  # of one chart
POINTS = 200  # entries of one chart
PAPERS = 30  # published figures of one board in one chart
LABEL = 40  # characters
NEAR = 0.6  # chance is drawn where the axis need not grow by more than this share

Values = list[dict[str, Any]]


@dataclass(frozen=True)
class Chart:
    """One chart: its words, its specification, its data as a table."""

    key: str  # unique on its page, safe in HTML
    title: str
    note: str
    spec: dict[str, Any]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Scale:
    """The axis of the metric and the rules across it."""

    domain: tuple[float, float]  # percent
    rules: Values
    note: str  # what is said where chance is not drawn
    title: str

    @classmethod
    def of(cls, standing: Standing, rows: Values, papers: Values, ceiling: Interval | None) -> Scale:
        """Return an axis that shows all values, and chance where it is near."""
        found = [row[end] for row in rows for end in ("low", "high")] + [row["mean"] for row in papers]
        rules: Values = [{"at": round(100 * ceiling.mean, 4), "what": "no privacy"}] if ceiling else []
        found += [rule["at"] for rule in rules]
        low, high = min(found), max(found)
        share, note = view.chance(standing, standing.board.metric), ""
        if share is not None and 100 * share >= low - NEAR * max(high - low, 1.0):
            rules.append({"at": round(100 * share, 4), "what": "chance"})
            low = min(low, 100 * share)
        elif share is not None:
            note = f" Chance, {text.percent(share)}, lies below the axis."
        pad = max(high - low, 1.0) * 0.06
        domain = (round(max(low - pad, 0.0), 2), round(min(high + pad, 100.0), 2))
        return cls(domain, rules, note, axis_title(standing.board.metric))

    @property
    def scale(self) -> alt.Scale:
        """Return the scale, for either axis."""
        import altair as alt

        return alt.Scale(domain=list(self.domain), zero=False, nice=False)

    def channel(self, field: str, along: Literal["x", "y"]) -> alt.X | alt.Y:
        """Return a field on this axis."""
        import altair as alt

        kind = alt.X if along == "x" else alt.Y
        return kind(field, type="quantitative", scale=self.scale, title=self.title)


def finished(chart: Any, datasets: dict[str, Values], height: int) -> dict[str, Any]:
    """Return the specification with its data."""
    whole: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    for key in ("$schema", "config"):  # colours of axes and words follow the page's theme
        whole.pop(key, None)
    return {**whole, "datasets": datasets}


def looks(learners: Sequence[str], every: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    """Return colour and shape of learners: the same on all pages, by their place among `every` learner."""
    import altair as alt

    places = [every.index(learner) for learner in learners]
    colours = [COLOURS[place % len(COLOURS)] for place in places]
    shapes = [SHAPES[place % len(SHAPES)] for place in places]
    legend = alt.Legend(orient="bottom", title=None, symbolLimit=SERIES * 2)  # columns as the page is wide
    return (
        alt.Color("learner:N", scale=alt.Scale(domain=list(learners), range=colours), legend=legend),
        alt.Shape("learner:N", scale=alt.Scale(domain=list(learners), range=shapes), legend=legend),
    )


def lines(rows: Values, every: Sequence[str]) -> tuple[Values, alt.StrokeDash]:
    """Return rows that say how their learner's line is drawn: dashed where its colour is another's too."""
    import altair as alt

    marked = [{**row, "line": "solid" if every.index(row["learner"]) < len(COLOURS) else "dashed"} for row in rows]
    scale = alt.Scale(domain=["solid", "dashed"], range=[[1, 0], [4, 2]])
    return marked, alt.StrokeDash("line:N", scale=scale, legend=None)


def point(entry: Entry, metric: str) -> dict[str, Any]:
    """Return an entry as a row: mean and ends of its interval in percent, and the words of its tooltip."""
    interval = entry.metrics[metric]
    low, high = (interval.mean if end is None else end for end in (interval.low, interval.high))
    return {
        "learner": text.shown(entry.learner, LABEL),
        "mean": round(100 * interval.mean, 4),
        "low": round(100 * low, 4),
        "high": round(100 * high, 4),
        "value": text.spread(interval),
        "epsilon": text.upward(entry.epsilon),
        "selection": entry.selection,
    }


def papers_of(standing: Standing) -> Values:
    """Return what papers report for a board, as rows."""
    return [
        {
            "learner": text.shown(one.learner, LABEL),
            "x": standing.board.epsilon,
            "mean": round(100 * one.value, 4),
            "value": text.percent(one.value),
            "source": one.source,
            "differs": one.differs or "–",
        }
        for one in standing.board.published[:PAPERS]
    ]


def papers_note(papers: Values) -> str:
    """Return what is said of figures that nobody measured here."""
    return " Hollow: what papers report, under protocols that differ." if papers else ""


def ceiling_of(standings: Iterable[Standing]) -> Interval | None:
    """Return the best score without privacy."""
    found = [(one.board.metric, entry) for one in standings if (entry := view.ceiling(one)) is not None]
    return max((entry.metrics[metric] for metric, entry in found), key=lambda one: one.mean, default=None)


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Return tooltips: `field=Title`, all of them words."""
    import altair as alt

    pairs = (one.partition("=") for one in fields)
    return [alt.Tooltip(f"{field}:N", title=title or field) for field, _, title in pairs]


def rules(scale: Scale, along: Literal["x", "y"]) -> list[Any]:
    """Return the layers of rules at values of the metric: a dashed line, and its word."""
    import altair as alt

    line = alt.Chart(alt.NamedData("rules")).mark_rule(strokeDash=[4, 3])
    layers: list[Any] = [line.encode(**{along: scale.channel("at", along)})]
    for rule in scale.rules:
        word = alt.Chart(alt.NamedData("rules")).transform_filter(alt.datum.what == rule["what"])
        if along == "x":
            left = 2 * rule["at"] < sum(scale.domain)
            word = word.mark_text(align="left" if left else "right", baseline="bottom")
            layers.append(word.encode(x=scale.channel("at", "x"), y=alt.value(-3), text="what:N"))
        else:
            word = word.mark_text(align="center", baseline="bottom", dy=-3)
            middle = alt.value({"expr": "width / 2"})  # clear of the dots, which stand at the edges
            layers.append(word.encode(y=scale.channel("at", "y"), x=middle, text="what:N"))
    return layers


def series(rows: Values) -> list[str]:
    """Return learners, those with the best entry first, at most as many as a legend can hold."""
    order = sorted(rows, key=lambda row: -row["mean"])
    return list(dict.fromkeys(row["learner"] for row in order))[:SERIES]


def axis_title(metric: Metric) -> str:
    """Return the title of the metric's axis."""
    return f"{'AUROC' if metric == 'auroc' else TITLES[metric].lower()} (%)"
