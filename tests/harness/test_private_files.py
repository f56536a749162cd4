"""A learner that opens the files of the private dataset while it fits or predicts is refused."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import torch
from dpbench_plugins.learners.class_means import ClassMeans
from sklearn.datasets import load_digits, load_wine

from dpbench import Curator, Predict, PublicData
from dpbench.errors import PrivacyError
from dpbench.harness.private_files import FileAccessLog, PrivateDatasetFiles
from dpbench.privacy.purity.audit_events import judge_audit_events
from dpbench.support.paths import cache_folder
from tests.helpers.strangers import run_learner

REFUSED = "opened a file of the private dataset during the fit"


def reads(does: Callable[[], object]) -> type[ClassMeans]:
    """Return a learner that does something else before it fits, and swallows what is raised."""

    @dataclass(frozen=True)
    class Reads(ClassMeans):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            with suppress(Exception):
                does()
            return super().fit(curator, public, generator)

    return Reads


def test_what_a_dataset_reads_as_it_loads_no_fit_may_read() -> None:
    with pytest.raises(PrivacyError, match=REFUSED):
        run_learner(reads(load_digits))


def predicts(does: Callable[[], object]) -> type[ClassMeans]:
    """Return a learner whose predictor does something else before it predicts, and swallows what is raised."""

    @dataclass(frozen=True)
    class Predicts(ClassMeans):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            predict = super().fit(curator, public, generator)

            def cheat(x: torch.Tensor) -> torch.Tensor:
                with suppress(Exception):
                    does()
                return predict(x)

            return cheat

    return Predicts


def test_no_predictor_reads_the_labels_from_the_datasets_files() -> None:
    with pytest.raises(PrivacyError, match="The predictor opened a file of the private dataset"):
        run_learner(predicts(lambda: load_digits().target))


def test_a_predictor_may_read_other_data() -> None:
    assert run_learner(predicts(load_wine)).metrics["accuracy"].mean > 0.5


@pytest.mark.parametrize("names", [os.listdir, lambda folder: [*os.scandir(folder)], Path.iterdir])
def test_folders_of_classes_are_not_listed(names: Callable[[Path], Iterable[object]], tmp_path: Path) -> None:
    (tmp_path / "data" / "cats").mkdir(parents=True)
    files = PrivateDatasetFiles(below=(f"{(tmp_path / 'data').resolve()}{os.sep}",))
    for folder in (tmp_path / "data", tmp_path / "data" / "cats"):
        with pytest.raises(PrivacyError, match=REFUSED), files.refuse_access():
            list(names(folder))
    with files.refuse_access():
        list(names(tmp_path))


def test_other_data_may_be_read() -> None:
    assert run_learner(reads(load_wine)).metrics["accuracy"].mean > 0.5


def test_cached_features_are_refused(fresh_cache: Path) -> None:
    def features() -> bytes:
        return next((cache_folder() / "features").rglob("features.npy")).read_bytes()

    run_learner(ClassMeans)
    assert features()
    with pytest.raises(PrivacyError, match=REFUSED):
        run_learner(reads(features))


def test_files_below_a_datasets_folder_are_refused_by_any_name_of_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "train").mkdir(parents=True)
    (tmp_path / "data" / "train" / "1.png").write_bytes(b"")
    (tmp_path / "database").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    files = PrivateDatasetFiles(below=(f"{(tmp_path / 'data').resolve()}{os.sep}",))
    for name in ("data/train/1.png", "data/../data/train/1.png", "link/train/1.png"):
        with pytest.raises(PrivacyError, match=REFUSED), files.refuse_access():
            (tmp_path / name).read_bytes()
    with files.refuse_access():
        assert (tmp_path / "database").read_bytes() == b""


def test_modules_are_nobodys_data(tmp_path: Path) -> None:
    read = FileAccessLog()
    (tmp_path / "images.npy").write_bytes(b"")
    (tmp_path / "plugin.py").write_bytes(b"")
    with judge_audit_events(read):
        for name in ("images.npy", "plugin.py"):
            (tmp_path / name).read_bytes()
    assert read.found == {str((tmp_path / "images.npy").resolve())}


@pytest.mark.parametrize("name", ["{}", "file:{}?mode=ro", "file://localhost{}"])
def test_a_database_is_a_file_too(tmp_path: Path, name: str) -> None:
    file, read = (tmp_path / "im ages.db").resolve(), FileAccessLog()

    opened = name.format(file if name == "{}" else quote(str(file)))

    def query() -> None:
        with closing(sqlite3.connect(opened, uri=name != "{}")) as database:
            database.execute("select 1 from sqlite_master").fetchall()

    sqlite3.connect(file).close()
    with judge_audit_events(read):
        query()
        sqlite3.connect(":memory:").close()
    assert read.found == {str(file)}
    with pytest.raises(PrivacyError, match=REFUSED), PrivateDatasetFiles(frozenset(read.found)).refuse_access():
        query()


def test_tensors_in_a_file_that_ends_like_a_list_of_modules_are_data(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), file := tmp_path / "train.pth")
    with judge_audit_events(read := FileAccessLog()):
        torch.load(file)
    assert str(file.resolve()) in read.found
