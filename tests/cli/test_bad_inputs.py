"""Bad input of every kind: commands, TOML and JSON files, folders, images. None is a traceback, hangs or costs work.

Each is one sentence on standard error and exit code 1, or 2 where the form of a flag is wrong. A slip of dpbench's own
has an exit code of its own, 70, and would fail here.
"""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from dpbench import cli
from tests.helpers.commands import call
from tests.helpers.models import make_digits_model

FOREIGN = ("Traceback", "Value error", "nput should", "unable to", "is not a valid float", "instance of")
"""What Python and the libraries say that read flags and files, in words of their own."""
QUICK = ("--learner", "class-means:k=5", "--seeds", "1")

TOML = {
    "empty": "",
    "broken": "learner = ",
    "list": "learner = []",
    "number": "learner = 3",
    "unknown": "lerner = 'pillar'",
    "twice": "learner = 'pillar'\nlearner = 'jl'",
    "nested": "learner = {name = 'pillar', option = {k = 4}}",
    "nameless": "learner = {options = {k = 4}}",
    "text": "learner = 'pillar'\nepsilon = 'much'",
    "zero": "learner = 'pillar'\nepsilon = 0",
    "listed": "learner = 'pillar'\nepsilon = [1, 'x']",
    "same": "learner = ['jl', 'jl']",
    "seeds": "learner = 'pillar'\nseeds = [1, 1]",
    "noseeds": "learner = 'pillar'\nseeds = []",
    "minus": "learner = 'pillar'\nseeds = [-1]",
    "tuned": "learner = 'pillar'\ntune = 'yes'",
    "both": "learner = 'pillar'\ntune = true\nselection = 'public-validation'",
    "rule": "learner = 'pillar'\nselection = 'best'",
    "tries": "learner = 'pillar'\ntries = 5",
    "search": "learner = 'pillar'\nsearch = 'public-validation'",
    "space": "learner = 'pillar'\ntune = true\nspace = {depth = [1, 2]}",
    "board": "learner = 'pillar'\nboard = 'digits-eps9'",
    "onboard": "learner = 'pillar'\nboard = 'digits-eps1'\nepsilon = 2",
    "device": "learner = 'pillar'\ndevice = 'abacus'",
    "date": "learner = 2026-01-01",
    **{
        f"true-{key}": f"learner = 'pillar'\n{key} = true"
        for key in (
            "epsilon",
            "delta",
            "seeds",
            "public_fraction",
            "train_fraction",
            "imbalance",
            "split_seed",
            "tries",
            "threads",
        )
    },
    "true-seed": "learner = 'pillar'\nseeds = [0, true]",
    "true-option": "learner = {name = 'pillar', options = {k = true}}",
    "true-tries": "learner = 'pillar'\nsearch = {tries = true}",
    "true-space": "learner = 'pillar'\nsearch = {space = {k = [true]}}",
    "unit": "learner = 'pillar'\nunit = 'A1'",
    "three": "learner = 'pillar'\npublic_dataset = 3",
    "public": "learner = 'pillar'\npublic_dataset = 'digits'",
    "mark": "\ufefflearner = 'pillar'\nepsilon = -1",
    "sweep": "name = 'a'\n[grid]\nlearner = ['jl', 'pillar']",
}
SWEEPS = {
    "good": "name = 'a'\n[fixed]\nlearner = 'class-means:k=5'\nseeds = [0]\n[grid]\nepsilon = [1, 2]",
    "no-axis": "name = 'a'\n[fixed]\nlearner = 'jl'",
    "no-name": "[grid]\nlearner = ['jl']",
    "bad-name": "name = 'a/b'\n[grid]\nlearner = ['jl']",
    "bare": "name = 'a'\n[grid]\nlearner = 'jl'",
    "void": "name = 'a'\n[grid]\nlearner = []",
    "axis": "name = 'a'\n[grid]\nlerner = ['jl']",
    "two": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\nlearner = ['jl']",
    "cell": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\nepsilon = [1, -1]",
    "option": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\n'learner.depth' = [1, 2]",
    "huge": f"name = 'a'\nfixed = {{learner = 'jl'}}\n[grid]\nseeds = {[*range(1, 400)]}\nsplit_seed = {[*range(400)]}",
    "plot": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\nepsilon = [1, 2]\n[plot]\nx = 'delta'",
    "spec": "learner = 'jl'\nepsilon = 2",
    "true": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\nepsilon = [1, true]",
    "true-option": "name = 'a'\n[fixed]\nlearner = 'jl'\n[grid]\n'learner.k' = [true]",
}
JSON = {
    "nothing": b"", "null": b"null", "array": b"[]", "object": b"{}", "nan": b'{"spec": NaN}', "cut": b'{"spec": {"lea',
    "latin": b'{"spec": "\xe9"}', "deep": b"[" * 5000 + b"]" * 5000, "picture": b"\x89PNG\r\n\x1a\n",
    "alike": b'{"spec": {}, "privacy": {}, "seeds": []}', "large": b'{"schema_version": 1e999}',
}  # fmt: skip

RUN_FLAGS: dict[str, tuple[str, ...]] = {
    "--learner": (
        "pilar", "PILLAR", "", " ", "pillar:k", "pillar:k=", "pillar:k=x", "pillar:k=0", "pillar:k=-1", "pillar:k=9999",
        "pillar:k=nan", "pillar:depth=3", "pillar:k=3,k=4", "pillar:steps=0", "pillar:steps=1.5",
        "pillar:steps=1000000000", "pillar:steps=-1", "pillar:learning_rate=0", "pillar:learning_rate=nan",
        "pillar:learning_rate=1e30", "gep:learning_rate=1e30", "adadps:learning_rate=1e30",
        "pillar:momentum=1", "pillar:clip=0", "pillar:clip=nan", "pillar:clip=-1", "pillar:sample_rate=0",
        "pillar:sample_rate=2", "pillar:sample_rate=1e-12", "pillar:init=ones", "pillar:center=maybe", "pillar:half",
        "pillar:paper=1", "pillar,pillar", "pillar,,jl", "thrift:whitening=2", "thrift:clip=0", "thrift:k=0", "jl:k=0",
        "gep:k=0", "gep:anchors=-5", "public-only", "adadps", "public-prior", "public-prior:k=0",
        "public-prior:clip=0", "public-prior:ridge=0", "adadps:epsilon_c=0",
        "dp-raft:mean_share=1", "dp-raft:feature_norm=0", "class-means:k=5000", "dp-sgd-net", "prototypes:groups=0",
        "prototypes:reach=2", "prototypes:k=9999", "least-squares:k=5000", "least-squares:moment=1",
        "dp-sgd-net:network=alexnet", "dp-sgd:optimiser=lion", "../jl",
    ),
    "--dataset": (
        "digit", "mnist", "", "digits:size=3", "imagefolder", "imagefolder:", "imagefolder:/nowhere",
        "imagefolder:{empty}", "imagefolder:{train-only}", "imagefolder:{one-class}", "imagefolder:{unlike}",
        "imagefolder:{broken}", "imagefolder:{text}", "imagefolder:{void}", "imagefolder:{sizes}", "imagefolder:{zip}",
        "imagefolder:{cut-zip}", "imagefolder:{empty-zip}", "imagefolder:{png}", "imagefolder:path=", "cifar10:x=1",
        "digits,digits", "dermamnist:size=7",
    ),
    "--extractor": (
        "pixel", "", "pixels:size=0", "pixels:size=x", "pixels:size=1000000", "pixels:mode=CMYK", "pixels+", "+pixels",
        "pixels++pixels", "concat", "timm", "timm:", "timm:no-such-net", "torchvision:no-net", "checkpoint:/nowhere",
        "scatternet:scales=99", "pixels:flat=2",
    ),
    "--epsilon": ("0", "-1", "nan", "-inf", "1e9", "1e-9", "one", "", "1,1", "1,,2", "0.1;1"),
    "--delta": ("0", "1", "-1", "nan", "0.5", "inf", "x"),
    "--accountant": ("gdp", "PLD", ""),
    "--public-fraction": ("1", "-0.1", "nan", "2", "x"),
    "--public-dataset": ("digits", "nope", ""),
    "--train-fraction": ("0", "-1", "2", "1e-9", "nan", "x"),
    "--metric": ("speed", "ece", "Accuracy", ""),
    "--imbalance": ("1", "0.5", "-1", "inf", "nan", "1e9"),
    "--split-seed": ("-1", "1.5", "x"),
    "--seeds": ("0", "-1", "x", "1000000000"),
    "--selection": ("best", "oracle", "transfer", ""),
    "--tries": ("0", "5"),
    "--repeats": ("1", "5"),
    "--space": ("k", "k=", "=3", "depth=3", "paper"),
    "--settings": ("/nowhere", "{empty}", "{null}", "{object}", "{picture}"),
    "--device": ("abacus", "cuda:99", ""),
    "--out": ("{png}", "/proc/nowhere"),
    "--spec": ("/nowhere.toml", "{empty}", "{picture}", *(f"{{toml-{name}}}" for name in TOML)),
    "--board": ("digits-eps9", "", "/nowhere.toml", "{toml-broken}", "{toml-list}"),
}  # fmt: skip
COMMANDS = """
nonsense
run
run --nonsense
run --learner
run --learner jl extra
run jl
run --learner jl --epsilon 0,5
run --learner jl --train-fraction 0,5
run --learner jl --public-fraction 0,1
run --learner jl --delta=0,1
list imagefolders
list pillars
list dataset
run --learner jl --threads 0
run --learner jl,pillar --threads 0
run --learner jl --json --learner pillar
run --learner jl --delta 1e-5 --delta 1e-6
run --learner jl --board digits-eps1 --epsilon 2
run --learner jl,pillar --settings {object}
run --learner jl,pillar --models
run --learner jl --tune --selection default
run --learner jl --settings {object} --tune
run --learner non-private --epsilon 1
run --quiet --verbose --learner jl
tune
tune --learner class-means --space k=9999
tune --learner non-private
tune --learner jl --selection private-accounted
tune --learner jl --public-fraction 0
tune --learner jl --spec {toml-board}
budget
budget --release steps=1
budget --release steps=1 --epsilon 1 --sigma 1
budget --release steps=0 --sigma 1
budget --release steps=1.5 --sigma 1
budget --release steps=1000000000,sample_rate=0.1 --epsilon 1
budget --release sample_rate=2 --sigma 1
budget --release pace=2 --sigma 1
budget --release steps --sigma 1
budget --release steps=1 --sigma 0
budget --release steps=1 --sigma 1e-9
budget --release steps=1 --sigma 1e99
budget --release steps=1 --epsilon 1e9
budget --release steps=1 --epsilon 1e-9
budget --release steps=1 --epsilon 1 --delta 2
budget --release relative_noise=0 --sigma 1
sweep
sweep nowhere.toml
sweep {empty}
sweep {toml-empty}
sweep accuracy-against-epsilom
sweep {sweep-cell} --workers 0
sweep {toml-sweep} --executor cloud
sweep {toml-sweep} --slurm queue=long
sweep {toml-sweep} --scheduler tcp://x
sweep {toml-sweep} --threads 0
plot
plot nowhere
plot {toml-sweep}
plot accuracy-against-epsilon --out x.gif
plot accuracy-against-epsilon --out x
plot accuracy-against-epsilon --results /nowhere
results /nowhere
results {empty}
results {results} --learner pillar
results {results} --epsilon x
results {results} --metric speed
results {results} --metric auroc
results {results} --csv --latex
results show {empty}
compare {result}
compare {result} {result} --metric auroc
compare {result} {empty}
advise
advise /nowhere
advise {empty}
advise {png}
advise {one-class}
advise {broken} --public-fraction 0.9
advise {unlike} --public-fraction 0.5
advise {sizes} --epsilon 0
advise {sizes} --epsilon nan
advise {sizes} --epsilon 1,1
advise {sizes} --epsilon 0.5,,1
advise {sizes} --delta 0
advise {sizes} --delta 0.9 --public-fraction 0.5
advise {sizes} --accuracy 90
advise {sizes} --public-fraction 1
advise {sizes} --public-fraction 0.001
advise {sizes} --split-seed -1
advise {sizes} --extractor pixel
advise {sizes} --extractor pixels+
advise {sizes} --device abacus
advise {sixteen} --public-fraction 0.5 --no-public-labels
compare {result} {result} {result}
compare {result} {results}
compare {edited} {result}
verify {empty}
receipt from {empty}
receipt from {edited}
receipt from {result} --out {png}/receipt.json
report {empty}
report {edited}
report {result} --out {empty}
report {result} --out {png}/report.html
report {results} --metric auroc
claims nobody
claims --dataset MNISTT
claims --write --dataset CIFAR-10
results pack {png}
plot {empty}
plot {results} --results {results}
plot {results} --out {png}/x.png
plot {sweep-plot}
plot accuracy-against-epsilon --results {png}
pretrain pixels --out x
pretrain randp-wrn16-4
pretrain randp-wrn16-4:generator=gan --out x
pretrain randp-wrn16-4:seed=-1 --out x
pretrain randp-wrn16-4 --steps 0 --out x
pretrain randp-wrn16-4 --batch 0 --out x
pretrain randp-wrn16-4 --out /proc/nowhere
pretrain randp-wrn16-4 --out {empty}
pretrain randp-wrn16-4 --out {png}/x
pretrain randp-wrn16-4 --device abacus --out x
sweep {sweep-good} --dry-run --out {png}
sweep {sweep-good} --workers -1
sweep {sweep-good} --executor slurm
sweep {sweep-good} --executor slurm --slurm x
sweep {sweep-good} --executor local --slurm queue=long
sweep {sweep-good} --executor dask --scheduler nowhere
advise {sizes} --accuracy nan
advise {sizes} --delta 1e-300
advise {sizes} --epsilon inf
advise {sizes} --public-fraction nan
advise {sizes} --extractor checkpoint:/nowhere
advise {text} --public-fraction 0.5
advise {zip}
docs --out {png}
run --learner class-means --out {result}
audit
audit nowhere
audit {empty}
audit nowhere.toml
audit {toml-empty}
audit {toml-text}
audit {result} --canaries 5
audit {edited}
explain
explain {empty}
inspect --dataset digit
inspect --epsilon 0
inspect --extractor pixel
check
check pilar
check pillar:depth=3
check pixels:size=0
check imagefolder:/nowhere
museum nonsense
list nonsense
pretrain
pretrain nonsense
plugin
plugin new
plugin new My_Plugin
plugin new ../up
plugin new pillar --out {empty}
plugin new mine --kind optimizer
plugin new mine --out {png}
data
data info digit
data info imagefolder:/nowhere
data info imagefolder:{broken}
data fetch digit
data fetch cifar10 --to /nowhere
data import cifar10 /nowhere
data import cifar10 {png}
data import cifar10 {cut-zip}
data remove digit --yes
data remove cifar10 --yes --from /nowhere
cache
cache clear
cache clear nothing-of-that-name
cache clear --all everything
predict
predict nowhere
predict {empty}
predict {picture}
predict {foreign}
predict {cut-model}
predict {model} nowhere.png
predict {model} {empty}
predict {model} {text}
predict {model} {large-image}
predict {model} {png} --device abacus
leaderboard
leaderboard verify --seed 3
leaderboard verify --root /nowhere
leaderboard verify {png}
leaderboard verify {edited}
leaderboard build
leaderboard build --root {empty}
reproduce --list --root /nowhere
leaderboard build --check --site x
leaderboard add
leaderboard add {result} --root {empty}
leaderboard add {result} --root {board-root}
verify
verify --submission /nowhere
verify /dev/zero
verify {picture}
verify {foreign}
verify {cut-model}
verify {result} --seed 3
verify {result} --by me
verify {result} --rerun --json
verify {result} --submission --root /nowhere
leaderboard new
leaderboard new mine
leaderboard new mine --from {empty}
leaderboard new mine --from {result} --name A
leaderboard new mine --from {toml-empty}
leaderboard new mine --from {toml-text}
leaderboard new mine --from {result} --name ../up
leaderboard new {png} --from {result}
run --learner pillar --board mine/nothing
advise {sizes} --dataset imagefolder:{sizes}
advise --dataset cifar10
advise --dataset imagefolder:{sizes},mode=L
advise --dataset imagefolder:{sizes},units=(
advise {sizes} --unit patient
compare pillar
compare pillar jl
compare pillar jl --results {empty}
compare pillar jl --results {results} --epsilon x
verify --submission {result}
verify --submission {edited}
leaderboard diff {object} {object}
leaderboard diff {result} {result}
leaderboard export --csv -
leaderboard exchange nonsense
leaderboard publish {png}
leaderboard publish hf:nobody
leaderboard serve --root {empty}
leaderboard serve --port 99999
"""


def _cases() -> Iterator[tuple[str, ...]]:
    for flag, values in RUN_FLAGS.items():
        mine = () if flag in {"--learner", "--spec"} else QUICK[:2]
        seeds = () if flag in {"--seeds", "--spec", "--board"} else QUICK[2:]
        yield from (("run", *mine, *seeds, flag, value) for value in values)
    yield from (tuple(line.split()) for line in COMMANDS.strip().splitlines())
    yield from (("sweep", f"{{sweep-{name}}}") for name in SWEEPS if name != "good")
    for name, how in itertools.product(JSON, ("results show", "audit", "verify --submission")):
        yield (*how.split(), f"{{{name}}}")
    yield from (("compare", "{result}", f"{{{name}}}") for name in JSON)


CASES = list(_cases())


def _image(size: int = 8) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.arange(size * size, dtype=np.uint8).reshape(size, size)).save(content, "PNG")
    return content.getvalue()


def _deep() -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((8, 8), 60000, dtype=np.uint16)).save(content, "PNG")
    return content.getvalue()


def _tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    folder.mkdir(exist_ok=True)
    return folder


def _folders(root: Path) -> dict[str, Path]:
    image, whole = _image(), [f"{split}/{kind}/1.png" for split in ("train", "test") for kind in "ab"]
    good = dict.fromkeys(whole, image)
    found = {
        "empty": _tree(root / "empty", {}),
        "train-only": _tree(root / "train-only", {"train/a/1.png": image, "train/b/1.png": image}),
        "one-class": _tree(root / "one-class", {"train/a/1.png": image, "test/a/1.png": image}),
        "unlike": _tree(root / "unlike", {**good, "train/c/1.png": image}),
        "broken": _tree(root / "broken", {**good, "train/a/1.png": image[: len(image) // 2]}),
        "text": _tree(root / "text", {**good, "train/a/1.png": b"a poem"}),
        "void": _tree(root / "void", {**good, "test/b/1.png": b""}),
        "sizes": _tree(
            root / "sizes", {**{f"train/a/{k}.png": image for k in range(40)}, **good, "train/b/2.png": _image(9)}
        ),
        "sixteen": _tree(root / "sixteen", {f"train/{kind}/{k}.png": _deep() for kind in "ab" for k in "12"}),
        "png": root / "image.png",
        "zip": root / "images.zip",
        "cut-zip": root / "cut.zip",
        "empty-zip": root / "empty.zip",
        "large-image": root / "large.png",
    }
    found["png"].write_bytes(image)
    found["large-image"].write_bytes(_image(64))
    with zipfile.ZipFile(found["zip"], "w") as archive:
        archive.writestr("train/a/1.png", b"no image")
    found["cut-zip"].write_bytes(found["zip"].read_bytes()[:-30])
    zipfile.ZipFile(found["empty-zip"], "w").close()
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Everything that commands name, by name; one run has ended before."""
    root = tmp_path_factory.mktemp("bad")
    found = _folders(root)
    for kind, texts in (("toml", TOML), ("sweep", SWEEPS)):
        for name, text in texts.items():
            found[f"{kind}-{name}"] = root / f"{kind}-{name}.toml"
            found[f"{kind}-{name}"].write_text(text, encoding="utf-8")
    for name, content in JSON.items():
        found[name] = root / f"{name}.json"
        found[name].write_bytes(content)
    results = found["results"] = root / "results"
    assert call("run", *QUICK, "--out", str(results)) == 0
    (found["result"],) = results.glob("*.json")
    found["model"] = root / "model.onnx"
    found["model"].write_bytes(make_digits_model())
    edited = json.loads(found["result"].read_bytes())
    edited["privacy"]["sigma"] *= 2
    found["edited"] = root / found["result"].name
    found["edited"].write_text(json.dumps(edited), encoding="utf-8")
    found["cut-model"] = root / "cut.onnx"
    found["cut-model"].write_bytes(found["model"].read_bytes()[:-5])
    found["foreign"] = root / "foreign.safetensors"
    save_file({"weight": torch.ones(3)}, found["foreign"])
    found["board-root"] = root / "board-root"
    (found["board-root"] / "boards").mkdir(parents=True)
    (found["board-root"] / "boards" / "x.toml").write_text("name = 'x'", encoding="utf-8")
    return found


def _filled(arguments: tuple[str, ...], files: dict[str, Path]) -> list[str]:
    filled = list(arguments)
    for name, file in files.items():
        filled = [word.replace(f"{{{name}}}", str(file)) for word in filled]
    return filled


def _state(folder: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".log"
    }


def test_there_are_two_hundred_and_more() -> None:
    assert len(set(CASES)) == len(CASES) > 200


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...],
    files: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path))
    before = _state(files["results"])
    with pytest.raises(SystemExit) as ended:
        cli.main(_filled(arguments, files))
    said = capsys.readouterr()
    assert ended.value.code in (1, 2), said
    assert not any(words in said.err + said.out for words in FOREIGN)
    assert said.err or said.out
    assert _state(files["results"]) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--learner", "pilar"),
        *(
            pytest.param(command, marks=pytest.mark.long)
            for command in (("run", "--nonsense"), ("results", "/nowhere"), ("predict", "{picture}"))
        ),
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_so_it_is_from_a_shell(arguments: tuple[str, ...], files: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "dpbench.cli", *_filled(arguments, files)]
    main = [sys.executable, "-c", "import sys; from dpbench.cli import main; main(sys.argv[1:])", *command[3:]]
    done = subprocess.run(main, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert done.stderr.startswith("dpbench: ") and done.stderr.count("\n") == 1
