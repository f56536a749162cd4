"""Take fingerprints in a checkout of an earlier version, which has no command for it.

Run by that version's own interpreter, from any folder: `python tests/fingerprints/elsewhere.py RESULTS FOLDER`. The
modules of this tree that take fingerprints are put beside those of that version. They import few names, and since
b1ba9e77 only one of these is new. When one moves, take fingerprints by these files as they were.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
TAKEN = (
    "dpbench.records.fingerprints",
    "dpbench.registry.same_code",
    "dpbench.harness.fingerprints",
    "dpbench.harness.fingerprints.core",
    "dpbench.harness.fingerprints.tasks",
    "dpbench.harness.fingerprints.learners",
    "dpbench.harness.fingerprints.extractors",
    "dpbench.harness.fingerprints.taking",
    "dpbench.board.fingerprinting",
)


def main(results: Path, folder: Path) -> None:
    """Take all fingerprints that results ask for, of the code that this interpreter has installed."""
    _add_record()
    for name in TAKEN:
        importlib.import_module(name.rpartition(".")[0])
        place = HERE.joinpath(*name.split("."))
        spec = spec_from_file_location(name, place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
        if spec is None or spec.loader is None:
            raise ImportError(name)
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    from dpbench import registry
    from dpbench.board.fingerprinting import refresh

    for done in refresh(results, folder, registry.load()):
        print(f"{done.kind} {done.name}: {len(done.prints)} settings, {len(done.choices)} choices", flush=True)


def _add_record() -> None:
    """Put the base of records where it is since 7c502a81."""
    from pydantic import BaseModel, ConfigDict

    validation = importlib.import_module("dpbench.support.validation")
    if "Record" not in vars(validation):
        rules = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
        vars(validation)["Record"] = type("Record", (BaseModel,), {"model_config": rules, "__module__": __name__})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
