"""The page of the literature's claims: a verdict for each, and accuracy against epsilon beside our boards' best."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.analysis.draw import Line, draw_lines, new_figure, score_without_interval
from dpbench.analysis.palette import REFERENCE, SHAPES, LearnerStyle, style_at
from dpbench.board.index import Standing
from dpbench.site.context import Site
from dpbench.site.extras import ExtraPages
from dpbench.site.layout import Section
from dpbench.site.picture import Chart, inline_svg
from dpbench.site.render import Renderer
from dpbench_lab.claims.catalogue import PUBLIC, Claim, Paper, PublicData, read_catalogue
from dpbench_lab.claims.verdict import JUDGEMENTS, Judgement, Verdict, judge_all, read_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS: Mapping[Judgement, LearnerStyle] = {
    "reproducible": style_at(2), "stated with margin": style_at(0), "understated": style_at(3),
    "underspecified": REFERENCE,
}  # fmt: skip
"""Colour and mark of each verdict."""
OURS = LearnerStyle(None, SHAPES[1])
"""The mark of our boards' best."""
FILTERS = {"dataset": "Dataset", "public-data": "Public data", "year": "Year", "verdict": "Verdict"}
"""The columns that the table is filtered by, and their heads."""
FEWEST = 3  # claims of a chart


@dataclass(frozen=True)
class ClaimRow:
    """One row of the table."""

    paper: Paper
    claim: Claim
    verdict: Verdict

    @property
    def score(self) -> str:
        """Accuracy in percent, or the area under the curve."""
        if self.claim.accuracy is not None:
            return f"{self.claim.accuracy:g}"
        return "" if self.claim.auc is None else f"{self.claim.auc:g} AUC"

    @property
    def public(self) -> str:
        """What was public, in words."""
        return PUBLIC[self.claim.public]

    @property
    def notes(self) -> str:
        """Which data was public, what is missing, and what was assumed."""
        named = [f"public: {self.claim.public_data}"] if self.claim.public_data else []
        missing = [f"missing: {', '.join(self.verdict.missing)}"] if self.verdict.missing else []
        return "; ".join([*named, *missing, *self.verdict.remarks])

    @property
    def places(self) -> list[tuple[str, str]]:
        """The fields of each place, and the place."""
        found: dict[str, list[str]] = defaultdict(list)
        for field, place in self.claim.sources.items():
            found[place].append(field)
        return [(", ".join(fields), place) for place, fields in found.items()]


def _files(site: Site, renderer: Renderer) -> Iterator[tuple[str, bytes]]:
    """Yield the page; one without rows where the leaderboard has no catalogue."""
    folder = site.root / "claims"
    papers = read_catalogue(folder) if folder.is_dir() else ()
    verdicts = judge_all(papers, read_record(folder))
    pairs = [(paper, claim) for paper in papers for claim in paper.claims]
    rows = [ClaimRow(paper, claim, one) for (paper, claim), one in zip(pairs, verdicts, strict=True)]
    counts = Counter(one.judgement for one in verdicts)
    choices = {
        "dataset": sorted({row.claim.dataset for row in rows}),
        "public-data": [word for key, word in PUBLIC.items() if key in {row.claim.public for row in rows}],
        "year": sorted({str(paper.year) for paper in papers if paper.year}, reverse=True),
        "verdict": [one for one in JUDGEMENTS if counts[one]],
    }
    values = {
        "rows": rows, "papers": papers, "counts": [(one, counts[one]) for one in JUDGEMENTS], "filters": FILTERS,
        "choices": choices, "charts": charts(rows, site.families),
    }  # fmt: skip
    yield "claims.html", renderer.page("claims", "claims.html", "claims", values)


def charts(rows: Sequence[ClaimRow], families: Sequence[Sequence[Standing]]) -> list[Chart]:
    """Return accuracy against epsilon, for each dataset and kind of public data on which a board has entries too."""
    groups: dict[tuple[str, PublicData], list[ClaimRow]] = defaultdict(list)
    for row in rows:
        if row.claim.accuracy is not None:
            groups[row.claim.dataset, row.claim.public].append(row)
    found = []
    for (dataset, public), group in sorted(groups.items()):
        ours = {name: points for name, points in _ours(families, dataset, public).items() if points}
        if ours and len(group) >= FEWEST:
            found.append(_chart(dataset, public, group, ours))
    return found


def _ours(families: Sequence[Sequence[Standing]], dataset: str, public: PublicData) -> dict[str, dict[float, float]]:
    """Return the best entry's accuracy in percent by epsilon, for each family of whole private splits on these data."""
    found: dict[str, dict[float, float]] = {}
    for family in families:
        board = family[0].board
        whole = board.train_fraction == 1 and board.imbalance is None
        if whole and (_plain(board.dataset.name), scenario(family[0])) == (_plain(dataset), public):
            found[board.name.partition("-eps")[0]] = _best(family)
    return found


def _best(family: Sequence[Standing]) -> dict[float, float]:
    """Return the best ranked accuracy without public labels, in percent, of each board that has one, by epsilon."""
    found = {}
    for one in family:
        scores = [entry.metrics.get("accuracy") for entry in one.entries if entry.rank and not entry.reads_labels]
        if means := [score.mean for score in scores if score]:
            found[one.board.epsilon] = 100 * max(means)
    return found


def scenario(standing: Standing) -> PublicData:
    """Return what a board's features were made of: pixels and random processes need no images of anybody."""
    names = [part.name for part in standing.board.extractor.parts]
    without = all(name in {"patches", "pixels", "scatternet"} or name.startswith("randp") for name in names)
    return "nothing" if without else "imagenet"


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _chart(
    dataset: str, public: PublicData, group: Sequence[ClaimRow], ours: Mapping[str, Mapping[float, float]]
) -> Chart:
    key = f"claims-{_plain(dataset)}-{public}"
    title = f"{dataset}, public: {PUBLIC[public]}"
    note = (
        f"{len(group)} claims, marked by verdict; lines show the best entry of our boards at each ε. Papers differ in "
        "private images, public images and networks, so a higher point does not mean a better method."
    )
    drawn = inline_svg(lambda: _draw(group, ours), key, f"{title}. The table below the chart lists the numbers.")
    cells: list[tuple[str, ...]] = [
        (f"{row.paper.key}, {row.claim.id}", f"{row.claim.epsilon:f}", row.score, row.verdict.judgement)
        for row in group
    ]
    cells += [(name, f"{x:g}", f"{y:.2f}", "our board") for name, points in ours.items() for x, y in points.items()]
    return Chart(key, title, note, drawn, ("Claim or board", "ε", "Accuracy, %", "Verdict"), tuple(cells))


def _draw(group: Sequence[ClaimRow], ours: Mapping[str, Mapping[float, float]]) -> Figure:
    figure = new_figure(6.6, 4.0)
    axes = figure.add_axes((0.09, 0.12, 0.62, 0.85))
    axes.set_xscale("log")
    drawn = [
        Line(
            judgement, {float(row.claim.epsilon): score_without_interval(row.claim.accuracy or 0.0)}, style, stroke="",
            size=6,
        )
        for judgement, style in MARKS.items() for row in group if row.verdict.judgement == judgement
    ]  # fmt: skip
    drawn += [
        Line(name, {x: score_without_interval(best[x]) for x in best}, OURS, size=4) for name, best in ours.items()
    ]
    shown = {str(handle.get_label()): handle for handle in draw_lines(axes, drawn)}
    ticks = sorted({x for x in (0.1, 0.3, 1, 3, 10, 30) if axes.get_xlim()[0] <= x <= axes.get_xlim()[1]})
    axes.set_xticks(ticks, labels=[f"{x:g}" for x in ticks])
    axes.minorticks_off()
    axes.set(xlabel="ε (log scale)", ylabel="accuracy (%)")
    axes.legend(handles=list(shown.values()), loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


PAGE = ExtraPages(Section("claims", "Claims", "claims.html"), _files, "dpbench_lab.claims")
