"""`dpbench list NAME`: what a learner reads, and where its constants come from."""

from __future__ import annotations

import json

from dpbench import registry
from tests.helpers.commands import Output, call


def test_a_learner_says_what_it_reads_and_where_its_constants_come_from(capsys: Output) -> None:
    assert call("list", "public-prior") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "public data read: features and labels" in said
    assert "constants chosen on: training images of CIFAR-10, HAM10000 and the digits" in said


def test_the_json_of_a_learner_has_both_and_that_of_an_extractor_has_neither(capsys: Output) -> None:
    assert call("list", "pillar", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["public data read"] == "features"
    assert found["constants chosen on"] == registry.load().find("learner", "pillar").cls.rule_origin
    assert call("list", "pixels", "--json") == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert "constants chosen on" not in other
