"""Conversion of folders: nothing is lost, whatever ends a call, and what cannot be converted is one sentence."""

from __future__ import annotations

import copy
import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpbench.errors import DpbenchError, OutputError, SpecError
from dpbench.records import convert as converting
from dpbench.records import packed
from dpbench.records.checksums import compute_seal
from dpbench.records.convert import convert_results
from dpbench.records.packed import list_records, read_record
from dpbench.records.result import Result
from dpbench.records.schema1 import find_changed_value, upgrade_to_current_schema
from dpbench.support.files import canonical_digest
from dpbench.support.folders import lock_folder
from tests.helpers.commands import call
from tests.helpers.old_results import old_form
from tests.records.test_result import result

EPSILONS = (0.5, 1.0, 2.0, 4.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of four results of schema 1, two of them packed, an audit, a log, a figure and a link."""
    made = tmp_path / "results"
    for epsilon, place in zip(EPSILONS, ("loose", "loose", "packed", "packed"), strict=True):
        whole = result(epsilon)
        file = made / place / whole.file_name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(old_form(whole), indent=2, sort_keys=True) + "\n", encoding="utf-8")
    (made / "packed" / "audit.json").write_text('{"schema_version": 1, "seal": "a"}\n', encoding="utf-8")
    packed.pack_records(made / "packed")
    (made / "sweep.log").write_text("done\n", encoding="utf-8")
    (made / "figure.png").write_bytes(b"\x89PNG")
    (made / "link").symlink_to("loose")
    return made


Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    """Return the bytes of all files below a folder, by path."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def results_in(folder: Path) -> dict[str, dict[str, Any]]:
    found = {file.name: json.loads(read_record(file)) for file in list_records(folder)}
    return {name: content for name, content in found.items() if "spec" in content}


def assert_converted(folder: Path, before: dict[str, dict[str, Any]]) -> None:
    now = results_in(folder)
    assert now.keys() == before.keys()
    for name, content in now.items():
        read = Result.model_validate(content)
        assert find_changed_value(before[name], read) is None
        assert content == upgrade_to_current_schema(before[name], Result)
        assert read.remarks == Result.model_validate(upgrade_to_current_schema(before[name], Result)).remarks


def test_every_result_is_converted_and_all_else_stays_as_it_was(folder: Path) -> None:
    before, files = results_in(folder), tree(folder)
    done = convert_results(folder)
    assert (done.results, done.converted, done.kept) == (4, True, folder.with_name("results.schema-1"))
    assert_converted(folder, before)
    assert read_record(folder / "packed" / "audit.json") == b'{"schema_version": 1, "seal": "a"}\n'
    assert (folder / "link").readlink() == Path("loose")
    for name in ("sweep.log", "figure.png"):
        assert (folder / name).read_bytes() == files[name]
    assert tree(folder.with_name("results.schema-1")) == files
    assert {path.name for path in folder.parent.iterdir()} == {"results", "results.schema-1"}


def test_audits_and_reruns_below_the_folder_name_the_converted_result_and_nothing_else_changes(folder: Path) -> None:
    old = [canonical_digest(content["seal"]) for content in results_in(folder).values()]
    record = {"content": old[0], "digest": "of the spec", "by": "somebody"}
    record["seal"] = compute_seal(record)
    others = {"other": {**record, "content": "0" * 64}, "changed": {**record, "by": "somebody else"}}
    for name, content in {"own": record, **others}.items():
        for place in ("loose", "packed"):
            (folder / place / f"{name}-rerun.json").write_text(json.dumps(content), encoding="utf-8")
    packed.pack_records(folder / "packed")
    convert_results(folder)
    successor = next(new for new in results_in(folder).values() if new["converted_from"] == old[0])["evidence_digest"]
    for place in ("loose", "packed"):
        own, other, changed = (
            json.loads(read_record(folder / place / f"{name}-rerun.json")) for name in ("own", "other", "changed")
        )
        assert own["content"] == successor and own["by"] == "somebody" and own["seal"] == compute_seal(own)
        assert other == others["other"]
        assert changed["content"] == successor and changed["seal"] == record["seal"] != compute_seal(changed)
    assert convert_results(folder).converted is False


def test_a_record_is_not_brought_along_for_a_result_that_only_claims_to_be_converted(folder: Path) -> None:
    old = canonical_digest(next(iter(results_in(folder).values()))["seal"])
    convert_results(folder)
    convert_results(folder, delete_old=True)
    (folder / "late.json").write_text(json.dumps({"content": old, "seal": ""}), encoding="utf-8")
    files = tree(folder)
    assert convert_results(folder).converted is False
    assert tree(folder) == files


def test_two_calls_at_once_do_not_work_on_one_folder(folder: Path) -> None:
    files = tree(folder)
    with lock_folder(folder.parent), pytest.raises(OutputError, match="Another process"):
        convert_results(folder)
    assert tree(folder) == files


def test_folders_keep_their_permissions(folder: Path) -> None:
    (folder / "packed").chmod(0o750)
    folder.chmod(0o700)
    convert_results(folder)
    assert (folder.stat().st_mode & 0o777, (folder / "packed").stat().st_mode & 0o777) == (0o700, 0o750)


@pytest.mark.parametrize("records", ["audits", "challenges", "released", "reruns"])
def test_results_of_a_leaderboard_are_not_converted_without_its_records(folder: Path, records: str) -> None:
    (folder.parent / records).mkdir()
    with pytest.raises(SpecError, match=f"Convert .*, not its results alone: the records in {records}/ name them"):
        convert_results(folder)


def test_a_second_call_changes_nothing_and_the_third_deletes_the_old_folder(folder: Path) -> None:
    convert_results(folder)
    files = tree(folder)
    assert convert_results(folder).converted is False
    assert folder.with_name("results.schema-1").is_dir()
    assert convert_results(folder, delete_old=True).kept is None
    assert tree(folder) == files
    assert [path.name for path in folder.parent.iterdir()] == ["results"]


def test_the_old_folder_is_not_deleted_where_the_new_one_lacks_a_result(folder: Path) -> None:
    convert_results(folder)
    next((folder / "loose").glob("*.json")).unlink()
    with pytest.raises(OutputError, match="Expected the same files"):
        convert_results(folder, delete_old=True)
    assert len(results_in(folder.with_name("results.schema-1"))) == 4


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def crash(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


STEPS: dict[str, tuple[object, str]] = {
    "writing a loose result": (converting, "write_json"),
    "writing an archive": (converting, "write_archive"),
    "copying a file": (shutil, "copyfile"),
    "keeping a file's time": (shutil, "copystat"),
    "reading back": (converting, "compare_folders"),
    "comparing a number": (converting, "find_loss"),
    "renaming": (Path, "rename"),
}


@pytest.mark.quick(4)
@pytest.mark.parametrize("fail", [no_space, crash])
@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_fails_at_any_step_leaves_the_old_folder_and_the_next_one_converts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str, fail: Callable[..., None]
) -> None:
    before, files = results_in(folder), tree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], fail)
        with pytest.raises((OutputError, KeyboardInterrupt)):
            convert_results(folder)
    assert tree(folder) == files
    assert convert_results(folder).results == 4
    assert_converted(folder, before)
    assert tree(folder.with_name("results.schema-1")) == files


def test_a_call_that_is_cut_off_between_the_renames_is_finished_by_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rename = results_in(folder), Path.rename

    def once(path: Path, target: Path) -> Path:
        if path.name.startswith("."):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", once)
        with pytest.raises(KeyboardInterrupt):
            convert_results(folder)
    assert not folder.exists()
    assert len(results_in(folder.with_name("results.schema-1"))) == 4
    assert convert_results(folder).converted is False
    assert_converted(folder, before)


def test_a_number_that_would_change_stops_the_conversion(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tree(folder)
    monkeypatch.setattr(converting, "find_changed_value", lambda *_: "metrics.accuracy.mean")
    with pytest.raises(OutputError, match=r"does not have metrics\.accuracy\.mean as the file that it was"):
        convert_results(folder)
    assert tree(folder) == files
    assert [path.name for path in folder.parent.iterdir()] == ["results"]


def other_schema(folder: Path) -> None:
    result(8.0).with_evidence_digest().write(folder / "loose")


def changed_old(folder: Path) -> None:
    file = next((folder / "loose").glob("*.json"))
    file.write_text(file.read_text().replace('"fit": 0.1', '"fit": 0.2'), encoding="utf-8")


def changed_new(folder: Path) -> None:
    convert_results(folder)
    shutil.rmtree(folder.with_name("results.schema-1"))
    changed_old(folder)


def later_schema(folder: Path) -> None:
    file = next((folder / "loose").glob("*.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": 3}), encoding="utf-8")


def missing_field(folder: Path) -> None:
    file = next((folder / "loose").glob("*.json"))
    content = json.loads(file.read_text())
    del content["task"]
    file.write_text(json.dumps(content), encoding="utf-8")


def odd_number(folder: Path) -> None:
    file = next((folder / "loose").glob("*.json"))
    content = replaced(json.loads(file.read_text()), ("metrics", "accuracy", "low"), [])
    del content["seal"]
    file.write_text(json.dumps(content), encoding="utf-8")


def half_a_file(folder: Path) -> None:
    file = next((folder / "loose").glob("*.json"))
    file.write_bytes(file.read_bytes()[:100])


def taken_place(folder: Path) -> None:
    folder.with_name("results.schema-1").mkdir()


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_schema, "Expected results of one schema in {folder}, got 4 of schema 1 and 1 of schema 2"),
        (changed_old, "seconds.fit: changed after the file was written: its seal does not fit"),
        (changed_new, "evidence_digest: changed after the file was written"),
        (later_schema, "schema_version: expected 1 or 2, got 3. Update dpbench"),
        (missing_field, "does not fit the schema at task: field required"),
        (half_a_file, "is not JSON"),
        (odd_number, "does not have metrics.accuracy.low as the file that it was converted from"),
        (taken_place, "is where the old results would be kept, and it exists already"),
        (empty, "Expected results in {folder}, found none"),
        (shutil.rmtree, "Expected a folder of results, got {folder}, which is not one"),
    ],
)
def test_what_cannot_be_converted_is_one_sentence_and_nothing_is_changed(
    folder: Path, spoil: Callable[[Path], None], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(folder)
    files = tree(folder.parent)
    assert call("results", "convert", folder) == 1
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert said.format(folder=folder) in err
    assert tree(folder.parent) == files


ODD_VALUES: tuple[Any, ...] = (..., None, 5, "x", True, [], [None], {}, {"a": 1})
"""Values of another type; `...` stands for no value."""


def walk(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field, and of the first two items of each list."""
    fields = content.items() if isinstance(content, dict) else enumerate(content[:2])
    for name, value in fields:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from walk(value, (*path, name))


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(content)
    owner = functools.reduce(lambda part, name: part[name], path[:-1], made)
    if value is ...:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return made


@pytest.mark.quick("digest")
@pytest.mark.parametrize("part", ["digest", "metrics", "privacy", "seeds", "task"])
def test_an_unsealed_result_with_an_odd_field_is_converted_or_one_sentence(tmp_path: Path, part: str) -> None:
    whole = {name: value for name, value in old_form(result()).items() if name != "seal"}
    refused = 0
    for number, path in enumerate(path for path in walk(whole) if path[0] == part):
        for value in ODD_VALUES:
            folder = tmp_path / str(number) / str(ODD_VALUES.index(value))
            folder.mkdir(parents=True)
            raw = json.dumps(replaced(whole, path, value)).encode()
            (folder / "odd.json").write_bytes(raw)
            try:
                convert_results(folder)
                kept = folder.with_name(f"{folder.name}.schema-1")
            except DpbenchError as error:
                assert "\n" not in str(error)
                refused, kept = refused + 1, folder
            assert (kept / "odd.json").read_bytes() == raw
    assert refused


def test_the_command_says_what_it_did(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("results", "convert", folder) == 0
    old = folder.with_name("results.schema-1")
    assert capsys.readouterr().out == (
        f"{folder}: 4 results converted to schema 2; the old folder is {old}. Delete it with --delete-old.\n"
    )
    assert call("results", "convert", folder, "--delete-old") == 0
    assert capsys.readouterr().out == f"{folder}: 4 results of schema 2 already.\n"
