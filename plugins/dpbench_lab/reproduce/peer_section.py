"""The section of a board's page that shows the same training by other libraries, as references without a rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from markupsafe import Markup

from dpbench_lab.reproduce.catalogue import PEERS

if TYPE_CHECKING:
    from dpbench_lab.reproduce.peers import PeerComparison

SECTION = Markup(
    '<section aria-labelledby="peers">\n<h2 id="peers">The same training by other libraries</h2>\n'
    '<div class="scroll" role="region" tabindex="0" aria-labelledby="peers">\n<table>\n'
    "<caption>dp-sgd trained by other code on the same features, with the same steps, clip, sample rate and σ. These "
    "are references without a rank: the other library held the private features itself, without the guards of "
    "dpbench.</caption>\n"
    '<thead><tr><th scope="col">Library</th><th scope="col">Sample rate, steps</th>'
    '<th scope="col" class="number">Accuracy, %</th><th scope="col" class="number">By dpbench, %</th>'
    '<th scope="col">Within both intervals</th><th scope="col" class="number">Its ε</th></tr></thead>\n<tbody>\n'
    "{rows}</tbody></table></div>\n</section>"
)
ROW = Markup(
    '<tr><th scope="row">{library}</th><td>{settings}</td><td class="number">{theirs}</td>'
    '<td class="number">{ours}</td><td>{agrees}</td><td class="number">{epsilon}</td></tr>\n'
)


def make_board_section_renderer() -> Callable[[str], Markup]:
    """Read the committed comparisons; return a function that renders a board's section (empty without comparisons)."""
    from dpbench_lab.reproduce.peers import find_measured_file, read_comparisons

    found: dict[str, list[PeerComparison]] = defaultdict(list)
    for name in PEERS:
        for comparison in read_comparisons(name) if find_measured_file(name).is_file() else ():
            found[f"{comparison.board}-eps{comparison.epsilon:g}"].append(comparison)
    return lambda board: (
        SECTION.format(rows=Markup().join(map(_render_peer_row, found[board]))) if board in found else Markup()
    )


def _render_peer_row(comparison: PeerComparison) -> Markup:
    _, _, settings, ours, theirs, agrees, _, epsilon, _ = comparison.cells
    return ROW.format(
        library=f"{comparison.implementation}, dp-sgd", settings=settings, theirs=theirs, ours=ours, agrees=agrees,
        epsilon=epsilon.partition(",")[0],
    )  # fmt: skip
