"""The page of published claims: verdicts, and charts of accuracy against epsilon with our boards' best entries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.analysis.draw import Line, draw_lines, new_figure, score_without_interval
from dpbench.analysis.palette import REFERENCE, SHAPES, LearnerStyle, make_style
from dpbench.board.index import Standing
from dpbench.site.context import SiteContext
from dpbench.site.extras import ExtraSection
from dpbench.site.layout import PageSection
from dpbench.site.picture import Chart, render_inline_svg
from dpbench.site.render import PageRenderer
from dpbench_lab.claims.catalogue import PUBLIC_DATA_WORDS, Claim, Paper, PublicData, read_catalogue
from dpbench_lab.claims.verdict import JUDGEMENTS, ClaimVerdict, Judgement, judge_all_claims, read_verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICT_STYLES: Mapping[Judgement, LearnerStyle] = {
    "reproducible": make_style(2), "stated with margin": make_style(0), "understated": make_style(3),
    "underspecified": REFERENCE,
}  # fmt: skip
"""Colour and mark of each verdict."""
BOARD_STYLE = LearnerStyle(None, SHAPES[1])
"""The style of our boards' best entries."""
FILTERS = {"dataset": "Dataset", "public-data": "Public data", "year": "Year", "verdict": "Verdict"}
"""The columns by which readers can filter the table, and their headings."""
MIN_CLAIMS = 3  # claims of a chart


@dataclass(frozen=True)
class ClaimRow:
    """One row of the table: a claim, its paper and its verdict."""

    paper: Paper
    claim: Claim
    verdict: ClaimVerdict

    @property
    def score(self) -> str:
        """Accuracy in percent, or the area under the curve; empty if the claim states neither."""
        if self.claim.accuracy is not None:
            return f"{self.claim.accuracy:g}"
        return "" if self.claim.auc is None else f"{self.claim.auc:g} AUC"

    @property
    def public(self) -> str:
        """The public data, in words."""
        return PUBLIC_DATA_WORDS[self.claim.public]

    @property
    def notes(self) -> str:
        """The public data, the missing numbers, and the assumptions."""
        named = [f"public: {self.claim.public_data}"] if self.claim.public_data else []
        missing = [f"missing: {', '.join(self.verdict.missing)}"] if self.verdict.missing else []
        return "; ".join([*named, *missing, *self.verdict.remarks])

    @property
    def places(self) -> list[tuple[str, str]]:
        """Pairs (fields, source): for each source, the fields that it states, joined by commas."""
        found: dict[str, list[str]] = defaultdict(list)
        for field, place in self.claim.sources.items():
            found[place].append(field)
        return [(", ".join(fields), place) for place, fields in found.items()]


def _render_files(site: SiteContext, renderer: PageRenderer) -> Iterator[tuple[str, bytes]]:
    """Yield the page; it has no rows if the leaderboard has no catalogue."""
    folder = site.root / "claims"
    papers = read_catalogue(folder) if folder.is_dir() else ()
    verdicts = judge_all_claims(papers, read_verdicts(folder))
    pairs = [(paper, claim) for paper in papers for claim in paper.claims]
    rows = [ClaimRow(paper, claim, verdict) for (paper, claim), verdict in zip(pairs, verdicts, strict=True)]
    counts = Counter(verdict.judgement for verdict in verdicts)
    choices = {
        "dataset": sorted({row.claim.dataset for row in rows}),
        "public-data": [word for key, word in PUBLIC_DATA_WORDS.items() if key in {row.claim.public for row in rows}],
        "year": sorted({str(paper.year) for paper in papers if paper.year}, reverse=True),
        "verdict": [judgement for judgement in JUDGEMENTS if counts[judgement]],
    }
    values = {
        "rows": rows, "papers": papers, "counts": [(judgement, counts[judgement]) for judgement in JUDGEMENTS],
        "filters": FILTERS, "choices": choices, "charts": make_charts(rows, site.families),
    }  # fmt: skip
    yield "claims.html", renderer.page("claims", "claims.html", "evidence", values)


def make_charts(rows: Sequence[ClaimRow], families: Sequence[Sequence[Standing]]) -> list[Chart]:
    """Return charts of accuracy against epsilon, one for each dataset and kind of public data that boards also have.

    A chart needs at least `MIN_CLAIMS` claims with an accuracy.
    """
    groups: dict[tuple[str, PublicData], list[ClaimRow]] = defaultdict(list)
    for row in rows:
        if row.claim.accuracy is not None:
            groups[row.claim.dataset, row.claim.public].append(row)
    found = []
    for (dataset, public), group in sorted(groups.items()):
        ours = {name: points for name, points in _collect_board_accuracies(families, dataset, public).items() if points}
        if ours and len(group) >= MIN_CLAIMS:
            found.append(_make_chart(dataset, public, group, ours))
    return found


def _collect_board_accuracies(
    families: Sequence[Sequence[Standing]], dataset: str, public: PublicData
) -> dict[str, dict[float, float]]:
    """Return family -> epsilon -> best accuracy in percent, for the board families of this dataset and public data.

    Families that train on only a part of the private split are left out.
    """
    found: dict[str, dict[float, float]] = {}
    for family in families:
        board = family[0].board
        whole = board.train_fraction == 1 and board.imbalance is None
        if whole and (_normalise_name(board.dataset.name), classify_public_data(family[0])) == (
            _normalise_name(dataset),
            public,
        ):
            found[board.name.partition("-eps")[0]] = _find_best_accuracies(family)
    return found


def _find_best_accuracies(family: Sequence[Standing]) -> dict[float, float]:
    """Return the best accuracy in percent, by epsilon, among ranked entries that read no public labels."""
    found = {}
    for standing in family:
        scores = [entry.metrics.get("accuracy") for entry in standing.entries if entry.rank and not entry.reads_labels]
        if means := [score.mean for score in scores if score]:
            found[standing.board.epsilon] = 100 * max(means)
    return found


def classify_public_data(standing: Standing) -> PublicData:
    """Return the public data of a board's features: nothing for pixels and random processes, else ImageNet."""
    names = [part.name for part in standing.board.extractor.parts]
    without = all(name in {"patches", "pixels", "scatternet"} or name.startswith("randp") for name in names)
    return "nothing" if without else "imagenet"


def _normalise_name(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _make_chart(
    dataset: str, public: PublicData, rows: Sequence[ClaimRow], board_accuracies: Mapping[str, Mapping[float, float]]
) -> Chart:
    key = f"claims-{_normalise_name(dataset)}-{public}"
    title = f"{dataset}, public: {PUBLIC_DATA_WORDS[public]}"
    note = (
        f"{len(rows)} claims, marked by verdict; lines show the best entry of our boards at each ε. Papers differ in "
        "private images, public images and networks, so a higher point does not mean a better method."
    )
    drawn = render_inline_svg(
        lambda: _draw_chart(rows, board_accuracies), key, f"{title}. The table below the chart lists the numbers."
    )
    cells: list[tuple[str, ...]] = [
        (f"{row.paper.key}, {row.claim.id}", f"{row.claim.epsilon:f}", row.score, row.verdict.judgement) for row in rows
    ]
    cells += [
        (name, f"{x:g}", f"{y:.2f}", "our board")
        for name, points in board_accuracies.items()
        for x, y in points.items()
    ]
    return Chart(key, title, note, drawn, ("Claim or board", "ε", "Accuracy, %", "Verdict"), tuple(cells))


def _draw_chart(rows: Sequence[ClaimRow], board_accuracies: Mapping[str, Mapping[float, float]]) -> Figure:
    figure = new_figure(6.6, 4.0)
    axes = figure.add_axes((0.09, 0.12, 0.62, 0.85))
    axes.set_xscale("log")
    drawn = [
        Line(
            judgement, {float(row.claim.epsilon): score_without_interval(row.claim.accuracy or 0.0)}, style, stroke="",
            size=6,
        )
        for judgement, style in VERDICT_STYLES.items() for row in rows if row.verdict.judgement == judgement
    ]  # fmt: skip
    drawn += [
        Line(name, {x: score_without_interval(best[x]) for x in best}, BOARD_STYLE, size=4)
        for name, best in board_accuracies.items()
    ]
    shown = {str(handle.get_label()): handle for handle in draw_lines(axes, drawn)}
    ticks = sorted({x for x in (0.1, 0.3, 1, 3, 10, 30) if axes.get_xlim()[0] <= x <= axes.get_xlim()[1]})
    axes.set_xticks(ticks, labels=[f"{x:g}" for x in ticks])
    axes.minorticks_off()
    axes.set(xlabel="ε (log scale)", ylabel="accuracy (%)")
    axes.legend(handles=list(shown.values()), loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)
    return figure


PAGE = ExtraSection(
    PageSection("evidence", "Published claims", "claims.html", "Accuracies at an ε from papers, with ε recomputed."),
    _render_files,
    "dpbench_lab.claims",
    "claims",
)
