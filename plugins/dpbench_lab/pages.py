"""The pages and figures that the studies add to the site and to the manual."""

from __future__ import annotations

from dpbench.site.extras import SiteExtras
from dpbench_lab.claims import page as claims
from dpbench_lab.explain import page as explain
from dpbench_lab.museum import matrix, record
from dpbench_lab.museum import page as museum
from dpbench_lab.reproduce import page as reproduce
from dpbench_lab.reproduce import peer_section


def _render_museum_page() -> str:
    return matrix.format_matrix_page(record.read_museum_record()).replace("\n### ", "\n## ")


EXTRAS = SiteExtras(
    pages=(reproduce.PAGE, claims.PAGE, museum.PAGE),
    evidence=(museum.render_museum_summary,),
    charts=(explain.make_learner_chart_lister,),
    boards=(peer_section.make_board_section_renderer,),
    manual={"explanation/museum.md": _render_museum_page},
)
