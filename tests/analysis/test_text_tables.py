"""Tables of texts: what a stranger wrote stays text in every format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from dpbench.analysis.text_tables import TextLine, TextTable, render_html, render_latex, render_markdown

HOSTILE = r"<b>|\input{x}"
TABLE = TextTable("", "learner", ("settings",), (TextLine(HOSTILE, (HOSTILE,), (True,)),))


@pytest.mark.parametrize(
    ("render", "cell"),
    [
        (render_markdown, r"**<b>\|\input{x}**"),
        (render_html, r"<b>&lt;b&gt;|\input{x}</b>"),
        (render_latex, r"\textbf{<b>|\textbackslash{}input\{x\}}"),
    ],
)
def test_a_cell_is_escaped_before_it_is_marked(render: Callable[[Sequence[TextTable]], str], cell: str) -> None:
    text = render([TABLE])
    assert cell in text
    assert "statistically tied" not in text  # a list of results by columns has no legend
