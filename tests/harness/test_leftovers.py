"""A fit leaves nothing behind in any module of its own distribution, whatever it imports and whenever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from textwrap import indent

import pytest

from dpbench.errors import NotPure
from dpbench.harness.own_modules import import_learner_modules
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import load
from tests.helpers.sessions import session

Install = Callable[..., str]
NUMBERS = count()

PLUGIN = """
from dataclasses import dataclass
from functools import cached_property
import torch
from dpbench import Learner, Release, hookimpl

@dataclass(frozen=True)
class Stasher(Learner):
    name = "{name}"
    public = "none"
    search_space = {{}}

    def plan(self, task, budget):
        return [Release("sums")]

    def fit(self, curator, public, generator):
        def ask():
            eye = torch.eye(curator.task.classes)
            rows = lambda chunk: eye[chunk.y].unsqueeze(2) * (chunk.x.flatten(1) - 0.3).unsqueeze(1)
            return curator.noisy_sum(rows, release="sums", clip=1.0)

        total = self.answer(ask)
        return lambda x: (x.flatten(1) - 0.3) @ total.T

    def answer(self, ask):
{body}

@hookimpl
def dpbench_learners():
    return [Stasher]
"""

LAZY = """
from functools import cache, cached_property

KEPT = None

class Tool:
    @classmethod
    def found(cls):
        return None

    @staticmethod
    def told():
        return None

    @property
    def held(self):
        return None

    @cached_property
    def made(self):
        return []

TOOL = Tool()

def remember(answer=None, kept=[]):
    kept += [] if answer is None else [answer]
    return kept[0] if kept else None

@cache
def first(ask):
    return ask()

class Key:
    def __init__(self, ask):
        self.ask = ask
    def __eq__(self, other):
        return True
    def __hash__(self):
        return 0
    def __call__(self):
        return self.ask()
"""

HONEST = """
from . import lazy
return ask() + 0 * len(lazy.Tool.__name__)
"""

STASHES = {
    "a module": """
from . import lazy
if lazy.KEPT is None:
    lazy.KEPT = ask()
return lazy.KEPT
""",
    "a module that only a computed name finds": """
from importlib import import_module
lazy = import_module(__name__ + "." + "yzal"[::-1])
if vars(lazy)["KE" + "PT"] is None:
    vars(lazy)["KE" + "PT"] = ask()
return vars(lazy)["KE" + "PT"]
""",
    "a replaced classmethod": """
from .lazy import Tool
if Tool.found() is None:
    answer = ask()
    Tool.found = classmethod(lambda cls: answer)
return Tool.found()
""",
    "a replaced staticmethod": """
from .lazy import Tool
if Tool.told() is None:
    answer = ask()
    Tool.told = staticmethod(lambda: answer)
return Tool.told()
""",
    "a property": """
from .lazy import Tool
if Tool().held is None:
    answer = ask()
    Tool.held = property(lambda tool: answer)
return Tool().held
""",
    "a cached property": """
from .lazy import TOOL
if not TOOL.made:
    TOOL.made.append(ask())
return TOOL.made[0]
""",
    "an attribute of a classmethod's function": """
from .lazy import Tool
function = vars(Tool)["found"].__func__
if not hasattr(function, "kept"):
    function.kept = ask()
return function.kept
""",
    "a default": """
from .lazy import remember
if remember() is None:
    remember(ask())
return remember()
""",
    "a cache": """
from .lazy import Key, first
return first(Key(ask))
""",
    "a new global": """
from . import lazy
if not hasattr(lazy, "later"):
    lazy.later = ask()
return lazy.later
""",
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution with one learner, and with these files, on the path; return the name of all three."""
    names = list[str]()
    modules = set(sys.modules)

    def installed(body: str, listed: bool = True, **files: str) -> str:
        name = f"stasher{next(NUMBERS)}"
        plugin = PLUGIN.format(name=name, body=indent(body.format(name=name).strip(), "        "))
        contents = {f"{name}/__init__.py": plugin, f"{name}/lazy.py": LAZY, **files}
        distribute(tmp_path / "site", name, {file.format(name=name): text for file, text in contents.items()}, listed)
        names.append(name)
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setenv("DPBENCH_PLUGINS", f"sklearn,pixels,{name}")
        return name

    yield installed
    for module in set(sys.modules) - modules:
        if module.startswith(tuple(names)):
            del sys.modules[module]


def distribute(site: Path, name: str, files: dict[str, str], listed: bool = True) -> None:
    """Write a distribution as an installer does, or as one that is edited, whose files are not listed."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dpbench]\n{name} = {name}\n")
    if listed:
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def ran(name: str) -> Result:
    return session(load()).run(make_spec({"learner": name, "epsilon": 0.5, "seeds": 1}, "the test"))


def assert_refused_for_good(name: str) -> None:
    """A first fit that writes is refused, and so is a second one, which only reads."""
    for _ in range(2):
        with pytest.raises(NotPure, match="leaves state behind: its fit changed "):
            ran(name)


@pytest.mark.quick(6)
@pytest.mark.parametrize("listed", [True, False], ids=["installed", "edited"])
@pytest.mark.parametrize("stash", STASHES)
def test_what_a_fit_writes_into_a_lazily_imported_module_of_its_own_is_refused(
    stash: str, listed: bool, install: Install
) -> None:
    assert_refused_for_good(install(STASHES[stash], listed))


def test_an_honest_lazy_import_of_its_own_is_not_refused(install: Install) -> None:
    assert len(ran(install(HONEST)).seeds) == 1


def test_a_module_deep_in_folders_without_an_init_is_its_own(install: Install) -> None:
    body = """
from {name}.deep.down import kept
if kept.KEPT is None:
    kept.KEPT = ask()
return kept.KEPT
"""
    assert_refused_for_good(install(body, False, **{"{name}/deep/down/kept.py": "KEPT = None"}))


def test_another_package_that_the_distribution_lists_is_its_own(install: Install) -> None:
    body = """
import importlib
kept = importlib.import_module("{name}_side.kept")
if kept.KEPT is None:
    kept.KEPT = ask()
return kept.KEPT
"""
    files = {"{name}_side/__init__.py": "", "{name}_side/kept.py": "KEPT = None"}
    assert_refused_for_good(install(body, **files))


def test_a_module_that_only_the_fit_can_import_is_refused(install: Install) -> None:
    body = """
import os
os.environ["MOODY"] = "1"
from . import moody
del os.environ["MOODY"]
return ask()
"""
    name = install(body, **{"{name}/moody.py": 'import os\nos.environ["MOODY"]'})
    with pytest.raises(NotPure, match=rf"changed module `{name}\.moody` \(imported for the first time"):
        ran(name)


def test_what_lies_around_and_no_distribution_brings_is_refused_if_a_fit_imports_it_first(
    install: Install, tmp_path: Path
) -> None:
    name = install('import importlib\nimportlib.import_module("{name}loose")\nreturn ask()')
    (tmp_path / "site" / f"{name}loose.py").write_text("")
    with pytest.raises(NotPure, match=rf"changed module `{name}loose`"):
        ran(name)


@pytest.mark.quick(1)
@pytest.mark.parametrize("whose", ["its own", "another"])
def test_of_projects_that_are_edited_only_another_may_be_imported_late(
    whose: str, install: Install, tmp_path: Path
) -> None:
    name = install('import importlib\nimportlib.import_module("{name}side")\nreturn ask()', False)
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / f"{name}side.py").write_text("")
    sys.path.append(str(tmp_path / "edited"))  # the fixture's patch takes it away again
    other = name if whose == "its own" else f"{name}other"
    info = tmp_path / "site" / f"{other}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {other}\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": (tmp_path / "edited").as_uri(), "dir_info": {"editable": True}})
    )
    if whose == "another":
        assert len(ran(name).seeds) == 1
    else:
        with pytest.raises(NotPure, match=rf"changed module `{name}side`"):
            ran(name)


def test_modules_that_fail_exit_or_are_scripts_are_passed_over(install: Install, tmp_path: Path) -> None:
    ran_script = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()"
    files = {
        "{name}/needs.py": "import nothing_of_that_name",
        "{name}/ends.py": "raise SystemExit(3)",
        "{name}/__main__.py": ran_script,
        "{name}/not-a-module.py": ran_script,
    }
    assert len(ran(install(HONEST, **files)).seeds) == 1
    assert not (tmp_path / "ran").exists()


def test_a_listed_file_that_another_one_shadows_is_not_imported(install: Install, tmp_path: Path) -> None:
    name = install(HONEST, **{"{name}_side.py": ""})
    ahead = tmp_path / "ahead"
    ahead.mkdir()
    (ahead / f"{name}_side.py").write_text("")
    sys.path.insert(0, str(ahead))
    try:
        ran(name)
        assert f"{name}_side" not in sys.modules
    finally:
        sys.path.remove(str(ahead))


def test_the_own_modules_of_a_built_in_learner_are_the_plugins_and_not_the_command_line() -> None:
    own = import_learner_modules(load().components["learner"]["dp-randp"].cls)
    assert own.names == {"dpbench_plugins"}
    names = {module.__name__ for module in own.whole}
    assert {"dpbench_plugins.networks.network_checkpoint", "dpbench_plugins.theory.learners.sspp"} <= names


CLASSMETHOD = """
from .lazy import Reader
return Reader.read(ask)
"""
READERS = {
    "safetensors": """
class Reader:
    @classmethod
    def read(cls, ask):
        from safetensors import safe_open
        from safetensors.torch import save
        return ask() + 0 * len(safe_open.__name__) + 0 * len(save.__name__)
""",
    "foreign": """
class Reader:
    @classmethod
    def read(cls, ask):
        global foreign
        import foreign.below
        return ask() + 0 * len(foreign.below.NAME)
""",
}
FRESH = """
import sys
from dpbench.harness.session import open_session
from dpbench.records.spec import make_spec
from dpbench.registry import load
name, module = sys.argv[1:]
plugins = load()
spec = make_spec({"learner": name, "epsilon": 0.5, "seeds": 1}, "the test")
assert module not in sys.modules, f"{module} was imported before"
open_session("cpu", plugins=plugins).run(spec)
assert module in sys.modules
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", READERS)
def test_a_lazy_import_of_another_distribution_in_a_classmethod_is_not_refused(
    module: str, install: Install, tmp_path: Path
) -> None:
    name = install(CLASSMETHOD, **{"{name}/lazy.py": READERS[module]})
    distribute(tmp_path / "site", "foreign", {"foreign/__init__.py": "", "foreign/below.py": "NAME = 'below'"})
    (tmp_path / "site/foreign-1.0.dist-info/entry_points.txt").unlink()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", FRESH, name, module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


SIBLING = """
class Sibling(Stasher):
    name = "{name}-sibling"

    def answer(self, ask):
        from . import lazy
        return ask() if lazy.KEPT is None else lazy.KEPT

@hookimpl
def dpbench_learners():
    return [Stasher, Sibling]
"""


def test_no_learner_of_a_distribution_is_believed_after_one_of_them_left_something(
    install: Install, tmp_path: Path
) -> None:
    name = install(STASHES["a module"])
    with (tmp_path / "site" / name / "__init__.py").open("a") as file:
        file.write(SIBLING.format(name=name))
    assert len(ran(f"{name}-sibling").seeds) == 1
    with pytest.raises(NotPure, match="leaves state behind"):
        ran(name)
    with pytest.raises(NotPure, match="leaves state behind"):
        ran(f"{name}-sibling")


def test_a_module_beside_a_learner_in_a_project_that_is_edited_is_refused_if_the_fit_imports_it_first(
    install: Install, tmp_path: Path
) -> None:
    name = install('import importlib\nimportlib.import_module("{name}helper")\nreturn ask()', False)
    (tmp_path / "site" / f"{name}helper.py").write_text("KEPT = None")
    info = tmp_path / "site" / f"{name}project-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}project\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": (tmp_path / "site").as_uri(), "dir_info": {"editable": True}})
    )
    with pytest.raises(NotPure, match=rf"changed module `{name}helper`"):
        ran(name)


@pytest.mark.parametrize(
    "body",
    [
        'from .lazy import Tool\nif not hasattr(Tool, "__kept__"):\n    Tool.__kept__ = ask()\nreturn Tool.__kept__',
        'from . import lazy\nf = getattr(lazy, "memo")\nif not hasattr(f, "kept"):\n    f.kept = ask()\nreturn f.kept',
        'task = ask.__closure__[0].cell_contents.task\nif not hasattr(task, "kept"):\n'
        '    object.__setattr__(task, "kept", ask())\nreturn task.kept',
    ],
    ids=["an attribute that looks like Python's", "a function that wraps a library's", "the task"],
)
def test_what_is_left_where_python_or_the_harness_keeps_things_reaches_no_second_fit(
    body: str, install: Install
) -> None:
    wrapped = LAZY + "\nimport functools, torch\n\n@functools.wraps(torch.mean)\ndef memo():\n    return None\n"
    name = install(body, **{"{name}/lazy.py": wrapped})
    try:
        result = session(load()).run(make_spec({"learner": name, "epsilon": 0.5, "seeds": 2}, "the test"))
    except NotPure:
        return
    assert [seed.spent for seed in result.seeds] == [{"sums": 1}, {"sums": 1}]
