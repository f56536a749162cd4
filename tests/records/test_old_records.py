"""Records that earlier versions wrote are read as they were written: one of each form that results ever had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dpbench.records.audit import Audit
from dpbench.records.checksums import seal_of
from dpbench.records.rerun import Rerun
from dpbench.records.result import Result

FOLDER = Path(__file__).parent / "old_records"
KINDS: dict[str, type[BaseModel]] = {"result": Result, "rerun": Rerun, "audit": Audit}
FILES = sorted(file.stem for file in FOLDER.glob("*.json"))


def missing(kept: Any, read: Any, place: str = "") -> list[str]:
    """Return where what was read lacks what is kept, or says something else."""
    if isinstance(kept, dict) and isinstance(read, dict):
        return [lost for key, value in kept.items() for lost in missing(value, read.get(key), f"{place}.{key}")]
    if isinstance(kept, list) and isinstance(read, list) and len(kept) == len(read):
        return [lost for number, value in enumerate(kept) for lost in missing(value, read[number], f"{place}.{number}")]
    return [] if kept == read else [place]


@pytest.mark.parametrize("name", FILES)
def test_a_record_of_each_old_form_is_read_whole(name: str) -> None:
    content = json.loads((FOLDER / f"{name}.json").read_bytes())
    record = KINDS[name.partition("-")[0]].model_validate(content)
    if name == "rerun-1":  # of one seed, whose fields stood beside the others
        (seed,) = record.model_dump()["seeds"]
        assert missing({key: content[key] for key in ("seed", "outcome", "accuracy", "predictions")}, seed) == []
    else:
        assert missing(content, json.loads(record.model_dump_json())) == []


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("result")])
def test_the_seal_of_an_old_result_holds(name: str) -> None:
    content = json.loads((FOLDER / f"{name}.json").read_bytes())
    assert seal_of(content) == content["seal"]
