"""Count the tables, figures, algorithms and numbered statements of the papers, from their texts.

Run `python -m tests.lab.paper_items FOLDER > tests/lab/paper_items.json` with a folder that holds the four texts. The
list has each item's number and its subject: the first words of its caption that carry meaning.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).with_suffix(".json")
PAPERS = {
    "pillar.txt": "PILLAR",
    "dp-randp.txt": "DP-RandP",
    "low-dimensional-structures.txt": "low-dimensional structures",
    "alon-limits.txt": "Alon, Bassily, Moran",
}
KINDS = ("Table", "Figure", "Algorithm", "Theorem", "Proposition", "Corollary", "Lemma")
# A caption starts a line; a sentence that mentions an item may, too, but goes on without a colon, full stop or bracket.
CAPTION = re.compile(rf"^({'|'.join(KINDS)}) (\d+(?:\.\d+)?)(?!\.\d)(?:[:.] ?| (?=\()|(?<=Algorithm \d) )(.*)$")
ITEM = re.compile(rf"\b({'|'.join(KINDS)})s? (\d[\d.a-z]*(?:(?:, | and | to )\d[\d.a-z]*)*)")
EMPTY = {
    "with", "that", "from", "this", "these", "those", "then", "have", "does", "such", "their", "where", "which",
    "there", "exists", "satisfies", "satisfy", "under", "between", "using", "other", "than", "into", "also", "each",
    "every", "denote", "define", "shows", "show", "following", "follows", "over", "more", "most", "include", "left",
    "right",
}  # fmt: skip
WORDS_IN_SUBJECT = 5


def count_items(text: str) -> dict[str, str]:
    """Return the items of a paper's text, in their order: like "Table 1", and its subject."""
    lines = text.splitlines()
    found: dict[str, str] = {}
    for place, line in enumerate(lines):
        if match := CAPTION.match(line):
            kind, number, caption = match.groups()
            found.setdefault(f"{kind} {number}", _subject(" ".join([caption, *lines[place + 1 : place + 3]])))
    return dict(sorted(found.items(), key=lambda item: _order_key(item[0])))


def named_items(place: str) -> Iterator[str]:
    """Yield the items that a study's place names: "Tables 3 and 16", "Figures 4 to 7", "Table 2a"."""
    for kind, numbers in ITEM.findall(place):
        for part in re.split(r", | and ", numbers):
            first, _, last = (re.sub("[a-z]", "", number) for number in part.partition(" to "))
            yield from (f"{kind} {number}" for number in (range(int(first), int(last) + 1) if last else [first]))


def _subject(caption: str) -> str:
    plain = re.sub(r"\$[^$]*\$|\[[^\]]*\]|[*_\\]\w*", " ", caption)
    words = [word for word in re.findall(r"[^\W\d_][\w-]{3,}", plain) if word.lower() not in EMPTY]
    return " ".join(dict.fromkeys(word.lower() for word in words[: 2 * WORDS_IN_SUBJECT][:WORDS_IN_SUBJECT]))


def _order_key(item: str) -> tuple[int, list[int]]:
    kind, number = item.split()
    return KINDS.index(kind), [int(part) for part in number.split(".")]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    counted = {paper: count_items((folder / name).read_text(encoding="utf-8")) for name, paper in PAPERS.items()}
    print(json.dumps(counted, indent=1, ensure_ascii=False))
