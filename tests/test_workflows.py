"""The workflows: their commands exist, their rights are few, and a stranger's pull request meets no secret."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]
from hypothesis import settings
from typer.testing import CliRunner

import dpbench
from dpbench.main import build_command_line

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EVERY = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def read(file: Path) -> dict[str, Any]:
    content: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {**content, "on": content[True]}  # YAML 1.1 reads the word `on` as true


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in read(file)["jobs"].values() for step in job["steps"]]


def commands() -> list[list[str]]:
    lines = [line for file in FILES for step in steps(file) for line in step.get("run", "").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("dpbench ")]


def test_there_are_the_workflows_that_the_readme_promises() -> None:
    assert [file.stem for file in FILES] == ["challenge", "ci", "nightly", "pages", "release", "submission"]
    assert ["leaderboard", "verify"] in commands()


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_of_a_workflow_exists_with_its_flags(words: list[str]) -> None:
    result = CliRunner().invoke(build_command_line(), [*words, "--help"])
    assert result.exit_code == 0, result.output
    command: Any = typer.main.get_command(build_command_line())
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known


def test_what_a_workflow_runs_of_the_repository_can_be_run() -> None:
    for script, workflow in itertools.product(("run", "slow"), ("ci", "release")):
        assert (ROOT / ".ci" / script).stat().st_mode & 0o111
        assert {"run": f".ci/{script}"} in steps(ROOT / ".github" / "workflows" / f"{workflow}.yml")


@EVERY
def test_a_workflow_may_read_the_repository_and_nothing_else(file: Path) -> None:
    pages = {"pages": "read"} if file.stem == "pages" else {}  # to know the address that the site will have
    assert read(file)["permissions"] == {"contents": "read", **pages}


def test_only_the_jobs_that_deploy_the_page_sign_records_and_publish_a_release_may_more() -> None:
    more = {(file.stem, name): job["permissions"] for file in FILES for name, job in read(file)["jobs"].items()
            if "permissions" in job}  # fmt: skip
    assert more == {
        ("challenge", "sign"): {"id-token": "write", "attestations": "write"},
        ("pages", "deploy"): {"pages": "write", "id-token": "write"},
        ("release", "publish"): {"id-token": "write"},
    }


def test_a_release_is_a_tag_of_the_version_that_is_stated_tested_before_it_is_published() -> None:
    content = read(ROOT / ".github/workflows/release.yml")
    assert content["on"] == {"push": {"tags": ["v*"]}}
    build, publish = (content["jobs"][name] for name in ("build", "publish"))
    assert publish["needs"] == "build"
    runs = [step.get("run", "") for step in build["steps"]]
    (tagged,) = (run for run in runs if "GITHUB_REF_NAME" in run)
    for version, code in ((dpbench.__version__, 0), ("9.9", 1)):
        done = subprocess.run(["bash", "-c", tagged], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": f"v{version}"},
                              check=False)  # fmt: skip
        assert done.returncode == code
    assert (
        runs.index(tagged)
        < runs.index(".ci/run")
        < runs.index(".ci/slow")
        < runs.index("pip install build\npython -m build\n")
    )
    assert [step["uses"] for step in publish["steps"]][-1] == TRUSTED


TRUSTED = "pypa/gh-action-pypi-publish@release/v1"


def test_every_version_of_python_that_the_package_names_is_tested() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    named = [line.rpartition(" ")[2] for line in stated if re.search(r"Python :: 3\.\d+$", line)]
    assert read(ROOT / ".github/workflows/ci.yml")["jobs"]["ci"]["strategy"]["matrix"]["python"] == named


def test_coverage_by_line_and_branch_stands_in_the_output_of_continuous_integration() -> None:
    coverage = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["coverage"]
    assert coverage["run"]["branch"] and "fail_under" not in coverage["report"]
    assert read(ROOT / ".github/workflows/ci.yml")["jobs"]["coverage"]["steps"][-1] == {"run": "pytest --cov"}


def test_before_a_commit_the_linters_of_continuous_integration_run() -> None:
    content = yaml.safe_load((ROOT / ".ci" / "pre-commit.yaml").read_text(encoding="utf-8"))
    (hooks,) = (repository["hooks"] for repository in content["repos"])
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for hook in hooks:
        assert hook["language"] == "system" and hook["entry"].removesuffix(" --force-exclude") in run


def test_the_page_is_deployed_from_main_alone() -> None:
    assert read(ROOT / ".github/workflows/pages.yml")["on"] == {"push": {"branches": ["main"]}}


def test_the_page_is_built_anew_and_deployed_by_actions_alone() -> None:
    build, deploy = read(ROOT / ".github/workflows/pages.yml")["jobs"].values()
    folder = shlex.split(next(step["run"] for step in build["steps"] if "dpbench" in step.get("run", "")[:7]))[-1]
    assert build["steps"][-1]["uses"].startswith("actions/upload-pages-artifact@")
    assert build["steps"][-1]["with"] == {"path": folder}
    assert [step["uses"].partition("@")[0] for step in deploy["steps"]] == ["actions/deploy-pages"]


def test_the_page_of_an_index_that_the_repository_does_not_have_is_not_deployed(tmp_path: Path) -> None:
    runs = [step.get("run", "") for step in steps(ROOT / ".github/workflows/pages.yml")]
    checks = [run for run in runs if run.startswith("git ")]
    (tmp_path / "leaderboard").mkdir()
    index, git = tmp_path / "leaderboard" / "leaderboard.json", ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    index.write_text("{}", encoding="utf-8")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    for text, code in (("{}", 0), ("[]", 1)):
        index.write_text(text, encoding="utf-8")
        assert [subprocess.run(shlex.split(run), cwd=tmp_path, check=False).returncode for run in checks] == [code]


def test_a_submission_is_checked_where_it_touches_the_leaderboard() -> None:
    assert read(ROOT / ".github/workflows/submission.yml")["on"] == {"pull_request": {"paths": ["leaderboard/**"]}}


def test_challenge_seeds_are_run_on_main_with_its_history_and_signed_by_a_job_that_runs_no_code() -> None:
    content = read(ROOT / ".github/workflows/challenge.yml")
    assert content["on"] == {"push": {"branches": ["main"], "paths": ["leaderboard/results/**"]}}
    assert "concurrency" not in content  # a push that waits would be dropped for the next one
    run, sign = content["jobs"]["run"]["steps"], content["jobs"]["sign"]["steps"]
    assert run[0]["with"]["fetch-depth"] == 0  # the filing commit is found in the history
    assert [step["uses"].partition("@")[0] for step in sign] == [
        "actions/download-artifact", "actions/attest-build-provenance"
    ]  # fmt: skip


def test_the_page_of_main_looks_filing_commits_up() -> None:
    assert steps(ROOT / ".github/workflows/pages.yml")[0]["with"]["fetch-depth"] == 0


def test_properties_are_tried_on_more_examples_every_night() -> None:
    nightly = ROOT / ".github/workflows/nightly.yml"
    assert read(nightly)["on"] == {"schedule": [{"cron": "23 3 * * *"}]}
    assert {"run": "pytest -m hypothesis --hypothesis-profile=nightly tests"} in steps(nightly)
    assert settings.get_profile("nightly").max_examples >= 20 * settings.get_profile("small").max_examples


@EVERY
def test_no_stranger_meets_a_secret_or_a_token_that_writes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "pull_request_target" not in text
    assert "secrets" not in text
    checkouts = [step for step in steps(file) if step.get("uses", "").startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@EVERY
def test_no_text_of_a_stranger_stands_in_a_script(file: Path) -> None:
    assert not [step["run"] for step in steps(file) if "${{" in step.get("run", "")]


@EVERY
def test_actions_are_githubs_own_at_a_major_version(file: Path) -> None:
    used = [step["uses"] for step in steps(file) if "uses" in step]
    assert used
    assert all(
        re.fullmatch(r"actions/[a-z-]+@v\d+", name) for name in used if (file.stem, name) != ("release", TRUSTED)
    )


@EVERY
def test_every_job_ends(file: Path) -> None:
    assert all(job["timeout-minutes"] <= 120 for job in read(file)["jobs"].values())
