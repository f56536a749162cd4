"""Building: the same bytes from the same files, what is ranked and what is not, and what is refused."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dpbench.board import build
from dpbench.board.build import INDEX, build_index
from dpbench.board.entry import make_repeat_command
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import rerun_seeds, write_rerun
from dpbench.errors import ChecksFailed, DataError
from dpbench.records.board import find_board
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry.boards import make_entry_spec
from dpbench.site import build_site
from tests.helpers import boards
from tests.helpers.readme import ROOT
from tests.helpers.sessions import session


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boards.world(tmp_path_factory)


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("synthetic")
    (root / "boards").mkdir()
    for name in ("digits-eps1", "pneumonia-lite0-eps1"):
        shutil.copy(ROOT / "leaderboard" / "boards" / f"{name}.toml", root / "boards")
        boards.write(boards.synthetic(find_board(name), 45, seed=1), root / "results" / name)
    return root


def standing(index: Index, name: str = "tiny") -> Standing:
    (found,) = (standing for standing in index.standings if standing.board.name == name)
    return found


def entry(index: Index, learner: str, board: str = "tiny") -> Entry:
    (found,) = (entry for entry in standing(index, board).entries if entry.learner == learner)
    return found


def change(root: Path, learner: str, field: str, value: Any) -> None:
    file = boards.file_of(root, learner)
    file.write_text(
        json.dumps(boards.resealed(boards.edited(json.loads(file.read_text(encoding="utf-8")), field, value))),
        encoding="utf-8",
    )


def test_the_same_files_give_the_same_bytes_wherever_they_lie(root: Path, world: Path, plugins: Registry) -> None:
    for file in root.rglob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")), indent=3), encoding="utf-8")
        os.utime(file, (0, 0))
    first, second = (build_index(path, plugins).encode() for path in (world, root))
    assert first == second
    assert str(world).encode() not in first


def test_what_is_written_is_read_as_it_was(root: Path, plugins: Registry) -> None:
    index = build_index(root, plugins)
    assert not build.is_index_current(index, root)
    assert Index.read(build.write_index(index, root)) == index
    assert build.is_index_current(index, root)


def test_every_number_is_that_of_its_result_to_the_last_digit(root: Path, plugins: Registry) -> None:
    index = json.loads(build.write_index(build_index(root, plugins), root).read_bytes())
    (tiny,) = [standing for standing in index["standings"] if standing["board"]["name"] == "tiny"]
    assert len(tiny["entries"]) == len(boards.LEARNERS)
    for filed in tiny["entries"]:
        result = Result.read(root / filed["file"])
        assert filed["metrics"] == {name: interval.model_dump() for name, interval in result.metrics.items()}
        privacy = json.loads(result.privacy.model_dump_json())
        assert [filed[name] for name in ("epsilon", "sigma", "independent")] == [
            privacy[name] for name in ("epsilon", "sigma", "independent")
        ]


def test_ranked_entries_come_first_and_what_is_no_entry_is_a_line(root: Path, plugins: Registry) -> None:
    found = [(entry.learner, entry.role, entry.rank) for entry in standing(build_index(root, plugins)).entries]
    assert found[0] == ("class-means", "entry", 1)
    assert sorted(found[1:]) == [
        ("non-private", "ceiling", None), ("pillar", "unranked", None), ("public-only", "control", None)
    ]  # fmt: skip


def test_what_is_not_ranked_says_why(root: Path, plugins: Registry) -> None:
    assert entry(build_index(root, plugins), "pillar").why.startswith("its settings were chosen by hand")
    change(root, "class-means", "status", "disputed")
    assert entry(build_index(root, plugins), "class-means").why == "it is disputed"
    assert entry(build_index(root, plugins), "class-means").role == "unranked"


@pytest.mark.quick(1)
@pytest.mark.parametrize("rule", ["private-unaccounted", "by-hand"])
def test_a_rule_that_the_board_does_not_rank_is_shown_unranked(synthetic: Path, plugins: Registry, rule: str) -> None:
    found = [
        entry for entry in standing(build_index(synthetic, plugins), "digits-eps1").entries if entry.selection == rule
    ]
    assert found
    assert {(entry.role, entry.rank) for entry in found} == {("unranked", None)}


def test_without_privacy_a_learner_that_is_no_reference_is_no_ceiling(root: Path, plugins: Registry) -> None:
    components = {"plugin": "x", "distribution": "dpbench-x", "version": "1"}
    file = boards.file_of(root, "non-private")
    made = boards.edited(json.loads(file.read_text(encoding="utf-8")), "spec.learner.name", "stranger")
    made = boards.resealed(boards.edited(made, "components.learner", components))
    file.unlink()
    file.with_name(Result.model_validate(made).file_name).write_text(json.dumps(made), encoding="utf-8")
    found = entry(build_index(root, plugins), "stranger (dpbench-x)")
    assert (found.role, found.why) == ("unranked", "it has no privacy, and its learner is not a reference")


def test_an_entry_says_what_it_read_and_that_nobody_ran_it_again(root: Path, plugins: Registry) -> None:
    index = build_index(root, plugins)
    assert {entry(index, name).trust for name in boards.LEARNERS if ":" not in name} == {"submitted"}
    assert not entry(index, "public-only").reads_private
    assert entry(index, "public-only").reads == "features and labels"
    assert entry(index, "class-means").reads == "features"
    assert entry(index, "non-private").reads == "nothing"


def test_a_result_that_was_run_again_is_reproduced_until_it_changes(root: Path, plugins: Registry) -> None:
    (stored,) = [result.stored for result in build.verify_leaderboard(root, ReviewContext.read(root, plugins)).results
                if result.stored.path == boards.file_of(root, "class-means")]  # fmt: skip
    write_rerun(rerun_seeds(Result.read(stored.path), None, session(plugins)), stored, root)
    found = entry(build_index(root, plugins), "class-means")
    assert (found.trust, found.reproduced) == ("reproduced", True)
    assert found.author_word == ("time, memory, machine and date",)
    assert found.again is not None and found.again.outcome == "same predictions" and found.again.made.version
    change(root, "class-means", "seconds.fit", 0.25)
    found = entry(build_index(root, plugins), "class-means")
    assert (found.trust, found.again) == ("submitted", None)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [("provenance.device", "cuda:0", "the fit ran on a GPU"), ("cpu_seconds", {}, "the result does not record it"),
     ("peak_bytes", {}, "the result does not record it")],
)  # fmt: skip
def test_an_entry_says_why_its_cost_is_not_known(
    root: Path, plugins: Registry, field: str, value: object, why: str
) -> None:
    assert entry(build_index(root, plugins), "class-means").unmeasured == ""
    change(root, "class-means", field, value)
    assert entry(build_index(root, plugins), "class-means").unmeasured.startswith(why)


@pytest.mark.slow
def test_pages_and_json_say_the_same_of_what_was_run_again(root: Path, plugins: Registry, tmp_path: Path) -> None:
    results = build.verify_leaderboard(root, ReviewContext.read(root, plugins)).results
    for learner, seeds in (("class-means", None), ("public-only", [1])):
        (stored,) = [result.stored for result in results if result.stored.path == boards.file_of(root, learner)]
        write_rerun(rerun_seeds(Result.read(stored.path), seeds, session(plugins), by="A Maintainer"), stored, root)
    index = build_index(root, plugins)
    found = {learner: entry(index, learner) for learner in ("class-means", "public-only", "pillar")}
    build_site(index, root, tmp_path / "site", plugins)
    pages = {name: read_text(tmp_path / "site" / name) for name in ("index.html", "audits.html", "boards/tiny.html")}
    own = {
        name: read_text(tmp_path / "site" / "entries" / "tiny" / f"{value.id}.html") for name, value in found.items()
    }
    words = {"class-means": "reproduced", "public-only": "1 of 2 seeds re-run", "pillar": "submitted"}
    for name, word in words.items():
        assert f"<strong>{word}</strong>" in own[name]
        assert "; ".join(found[name].author_word).replace("'", "&#39;") in own[name]
    assert all(f'<td class="trust">{word}</td>' in pages["boards/tiny.html"] for word in words.values())
    assert {name: value.reproduced for name, value in found.items()} == {
        "class-means": True, "public-only": False, "pillar": False
    }  # fmt: skip
    assert "by A Maintainer" in own["class-means"] and "Seeds 0, 1 of 2: same predictions" in own["class-means"]
    assert "Seed 1 of 2: same predictions" in own["public-only"]
    assert "1 in full and reproduced them</a>. It re-ran 1 more in part" in pages["index.html"]
    assert "reproduced <strong>1</strong> in full. It re-ran <strong>1</strong> more in part" in pages["audits.html"]


def read_text(file: Path) -> str:
    return " ".join(file.read_text(encoding="utf-8").split())


def test_a_board_without_results_tells_what_its_dataset_is(root: Path, plugins: Registry) -> None:
    found = standing(build_index(root, plugins), "tiny-2")
    assert (found.entries, found.test, len(found.classes), found.chance) == ((), 0, 10, 0.1)


def test_sizes_are_those_of_the_splits(root: Path, plugins: Registry) -> None:
    found = standing(build_index(root, plugins))
    assert (found.private, found.public, found.test) == (1294, 144, 359)


def test_the_command_of_an_entry_repeats_its_spec(root: Path, plugins: Registry) -> None:
    index = build_index(root, plugins)
    for filed in standing(index).entries:
        words = shlex.split(filed.command)
        assert words[:4] == ["dpbench", "run", "--board", "tiny"]
        spec = make_entry_spec(
            standing(index).board, {"learner": words[words.index("--learner") + 1]}, plugins, "the test"
        )
        built = plugins.build("learner", spec.learner.name, spec.learner.options)
        assert Result.read(root / filed.file).spec.learner == build_component(built)
    assert entry(index, "class-means").command == "dpbench run --board tiny --learner class-means"
    assert entry(index, "pillar").command.endswith("--learner pillar:steps=5")


def test_the_command_of_an_entry_with_earlier_defaults_names_its_settings(root: Path, plugins: Registry) -> None:
    found, known = standing(build_index(root, plugins)), ReviewContext.read(root, plugins)
    filed = next(filed for filed in found.entries if filed.learner == "class-means")
    said = make_repeat_command(Result.read(root / filed.file), found.board, known, earlier_defaults=True)
    assert said == f"{filed.command}:k={filed.settings['k']}"
    assert (filed.defaults_version, "defaults_version" in filed.model_dump()) == ("", False)


def build_component(part: Any) -> Component:
    from dpbench.registry.components import make_component_record

    return make_component_record(part)


def test_the_command_of_a_search_names_what_was_searched(synthetic: Path, plugins: Registry) -> None:
    entries = standing(build_index(synthetic, plugins), "digits-eps1").entries
    public = next(entry for entry in entries if entry.selection == "public-validation")
    assert "--selection public-validation --space k=10,20" in public.command
    unranked = next(entry for entry in entries if entry.selection == "private-unaccounted")
    assert "--board" not in unranked.command and "--epsilon 1 " in unranked.command
    assert public.tried == 2


def test_a_complaint_refuses_the_whole_build_and_lists_it(root: Path, plugins: Registry) -> None:
    change(root, "class-means", "privacy.epsilon", 0.5)
    with pytest.raises(ChecksFailed, match=r"1 complaint.*\n.*class-means-digits.*privacy.epsilon: expected 0\.99"):
        build_index(root, plugins)


def test_a_board_that_has_results_is_never_edited(root: Path, plugins: Registry) -> None:
    build.write_index(build_index(root, plugins), root)
    for name in ("tiny", "tiny-2"):  # the second has none
        file = root / "boards" / f"{name}.toml"
        file.write_text(file.read_text(encoding="utf-8").replace('title = "Tiny"', 'title = "Small"'), encoding="utf-8")
    assert standing(build_index(root, plugins)).board.title == "Small"
    for name in ("tiny", "tiny-2"):
        file = root / "boards" / f"{name}.toml"
        file.write_text(
            file.read_text(encoding="utf-8").replace('metric = "accuracy"', 'metric = "macro_f1"'), encoding="utf-8"
        )
    with pytest.raises(
        ChecksFailed, match=r"1 complaint.*\n  boards/tiny.toml: digest: a board with results must not change"
    ):
        build_index(root, plugins)


def test_a_leaderboard_that_cannot_be_read_is_not_overwritten(root: Path, plugins: Registry) -> None:
    (root / INDEX).write_text("[]", encoding="utf-8")
    with pytest.raises(ChecksFailed, match=r"leaderboard.json: file: it cannot be read"):
        build_index(root, plugins)


def test_results_that_tell_another_test_split_are_refused(synthetic: Path, tmp_path: Path, plugins: Registry) -> None:
    root = Path(shutil.copytree(synthetic, tmp_path / "copy"))
    file = sorted((root / "results" / "digits-eps1").iterdir())[-1]
    made = boards.edited(json.loads(file.read_text(encoding="utf-8")), "task.digests.private", "e" * 64)
    file.write_text(json.dumps(boards.resealed(made)), encoding="utf-8")
    with pytest.raises(ChecksFailed) as caught:
        build_index(root, plugins)
    assert [(complaint.file, complaint.field) for complaint in caught.value.complaints] == [
        (f"results/digits-eps1/{file.name}", "task.digests")
    ]


def test_what_fails_has_no_say_in_what_a_board_is(root: Path, plugins: Registry) -> None:
    for learner in ("class-means", "pillar", "public-only"):  # three of four, and all of them say the same
        change(root, learner, "task.digests.private", "e" * 64)
        change(root, learner, "provenance.dirty", True)
    with pytest.raises(ChecksFailed) as caught:
        build_index(root, plugins)
    assert len(caught.value.complaints) == 6
    assert not any("non-private" in complaint.file for complaint in caught.value.complaints)


def test_the_index_and_every_result_follow_the_schema(root: Path, synthetic: Path, plugins: Registry) -> None:
    for place in (root, synthetic):
        build.write_index(build_index(place, plugins), place)
        schema = json.loads((place / build.SCHEMA).read_text(encoding="utf-8"))
        validator = jsonschema.Draft202012Validator(schema)
        validator.check_schema(schema)
        for file in [place / INDEX, *sorted(place.glob("results/*/*.json"))[:10]]:
            assert validator.is_valid(json.loads(file.read_text(encoding="utf-8"))), file


@pytest.mark.parametrize("value", ["NaN", -1, None, "high"])
def test_what_does_not_follow_the_schema_is_refused(root: Path, plugins: Registry, value: object) -> None:
    made = json.loads(build_index(root, plugins).encode())
    validator = jsonschema.Draft202012Validator(build.make_schema())
    assert validator.is_valid(made)
    (tiny,) = [standing for standing in made["standings"] if standing["board"]["name"] == "tiny"]
    tiny["entries"][0]["sigma"] = value
    assert not validator.is_valid(made)


def test_infinity_is_spelled_as_json_can(root: Path, plugins: Registry) -> None:
    file = build.write_index(build_index(root, plugins), root)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(file.read_bytes(), parse_constant=refuse)
    assert math.isinf(entry(Index.read(file), "non-private").epsilon)


def test_what_is_no_leaderboard_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cannot read leaderboard .*absent\.json"):
        Index.read(tmp_path / "absent.json")
    (tmp_path / "x.json").write_text('{"standings": [], "ranking": "", "leader": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"x.json is not a valid leaderboard.json, at leader"):
        Index.read(tmp_path / "x.json")


def test_synthetic_results_pass_every_check_on_every_board(synthetic: Path, plugins: Registry) -> None:
    index = build_index(synthetic, plugins)
    for found in index.standings:
        roles = [entry.role for entry in found.entries]
        assert len(roles) == 45 and roles.count("ceiling") == 1
        ranked = [entry.rank for entry in found.entries if entry.rank is not None]
        assert ranked == sorted(ranked) and ranked[0] == 1 < ranked[-1]
