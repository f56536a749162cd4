"""The Atom feed of new entries."""

from __future__ import annotations

import uuid
from xml.etree import ElementTree

from dpbench.site import output, text, view
from dpbench.site.context import Site

MOST = 50
NAMESPACE = "http://www.w3.org/2005/Atom"
NEVER = "1970-01-01"  # a feed must say when it changed, and results of before noted no day


def feed(site: Site) -> bytes:
    """Return the newest entries whose day is on record, as Atom 1.0; addresses are relative where none was given."""
    address = site.settings.address
    dated = [(standing, entry) for standing, entry in site.entries if entry.made.date and entry.role == "entry"]
    dated.sort(key=lambda pair: (pair[1].made.date or "", pair[0].board.name, pair[1].id), reverse=True)
    ElementTree.register_namespace("", NAMESPACE)
    root = ElementTree.Element(f"{{{NAMESPACE}}}feed")
    _text(root, "title", "dpbench leaderboard: new entries")
    _text(root, "id", f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, address or 'dpbench leaderboard')}")
    _text(root, "updated", f"{site.settings.date or NEVER}T00:00:00Z")
    _link(root, f"{address}index.html", "alternate")
    _link(root, f"{address}feed.xml", "self")
    author = ElementTree.SubElement(root, f"{{{NAMESPACE}}}author")
    _text(author, "name", "The dpbench leaderboard")
    for standing, entry in dated[:MOST]:
        one = ElementTree.SubElement(root, f"{{{NAMESPACE}}}entry")
        _text(one, "title", text.shown(f"{view.name(entry)} on {standing.board.title}", 300))
        _text(one, "id", f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, entry.file)}")
        _text(one, "updated", f"{entry.made.date}T00:00:00Z")
        _text(one, "summary", text.shown(view.said(standing, entry), 1000))
        _link(one, address + output.page(standing, entry), "alternate")
    ElementTree.indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root) + b"\n"


def _text(parent: ElementTree.Element, name: str, said: str) -> None:
    ElementTree.SubElement(parent, f"{{{NAMESPACE}}}{name}").text = said


def _link(parent: ElementTree.Element, address: str, relation: str) -> None:
    ElementTree.SubElement(parent, f"{{{NAMESPACE}}}link", {"href": address, "rel": relation})
