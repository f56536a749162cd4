"""`A+B`: the features of several extractors side by side, from the words of a spec to a result that is checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.pixels import Pixels
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dpbench import Split, registry
from dpbench.board.verify.checks import find_protocol_differences
from dpbench.board.verify.declarations import check_provenance
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import rerun_seeds
from dpbench.data import cache, extraction
from dpbench.data.concat import Concat, concatenate_features, describe_training_data
from dpbench.data.keys import identify_images
from dpbench.errors import ComponentFailed, NotReproducible, SpecError
from dpbench.records.board import Board
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import boards
from dpbench.registry.components import build, make_component_record, resolve
from dpbench.support.untrusted import read_toml
from dpbench.sweep.grid import read_grid
from dpbench.testing.checking import check_laws
from tests.helpers.commands import Refusal, call
from tests.helpers.sessions import session

CPU = torch.device("cpu")
JOINED = "pixels:size=4,flat=false+pixels:mode=L"
NONE = "Expected the name of an extractor on both sides of each '+'"


def spec(extractor: Any, **values: Any) -> Spec:
    return make_spec({"learner": "dp-sgd:steps=3", "seeds": 1, "extractor": extractor, **values}, "the test")


def built(extractor: Any) -> Any:
    return resolve(spec(extractor), registry.load()).parts.extractor


def whole(extractor: Any) -> Spec:
    return resolve(spec(extractor), registry.load()).spec


def features(extractor: Any, images: list[Image.Image]) -> torch.Tensor:
    split = Split(images, np.zeros(len(images), np.int64))
    return cache.load_features(split, identify_images(split, "data", "train"), extractor, CPU)


def pictures(n: int) -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (8, 8, 3), dtype=np.uint8)) for _ in range(n)]


@pytest.fixture(scope="module")
def result() -> Result:
    return session().run(spec("pixels+pixels:size=4"))


def test_each_part_has_options_of_its_own() -> None:
    assert built("pixels:size=8,flat=true + pixels:mode=L+pixels") == Concat((Pixels(8), Pixels(mode="L"), Pixels()))


def test_a_value_without_a_key_is_that_of_the_part_s_shorthand() -> None:
    timm, pixels = built("timm:resnet18.a1_in1k+pixels").parts
    assert (timm.name, timm.model, pixels) == ("timm", "resnet18.a1_in1k", Pixels())


@pytest.mark.parametrize("text", ["checkpoint:path=/a+b/w.pth", "any:rate=1e+1", "any:rate=1e+1,path=a+B", "x:y=a++"])
def test_a_plus_that_no_name_follows_belongs_to_the_value(text: str) -> None:
    assert Component.parse_extractor(text) == Component.parse(text)


@given(st.lists(st.sampled_from(["pixels", "pixels:size=8", "timm:a.b_c", "any:rate=1e+1,k=-1"]), min_size=2))
def test_what_is_written_reads_back(texts: list[str]) -> None:
    joined = Component.parse_extractor("+".join(texts))
    assert list(map(str, joined.parts)) == texts
    assert Component.parse_extractor(str(joined)) == joined
    assert Component.model_validate_json(joined.model_dump_json()) == joined


@pytest.mark.parametrize(
    ("extractor", "message"),
    [
        ("pixels+", rf"^{NONE.replace('+', '[+]')} in 'pixels\+'\. Write it like"),
        ("+pixels", rf"^{NONE.replace('+', '[+]')}"),
        ("pixels++pixels", rf"^{NONE.replace('+', '[+]')}"),
        ("pixels+Pixels", rf"^{NONE.replace('+', '[+]')}"),
        ("pixels+pixles", r"^Unknown extractor 'pixles'\. Did you mean 'pixels'\?"),
        ("pixels+pixels:sice=3", r"^Unknown option 'sice' of extractor 'pixels'\. Did you mean 'size'\?"),
        ("pixels+pixels:size=0", r"^Expected size=0 in \[1, 2048\] in extractor 'pixels'"),
        ("pixels+pixels:8", r"^Expected key=value after extractor 'pixels', got '8'"),
        ("pixels+digits", r"^Unknown extractor 'digits'"),
        ("concat", r"^Expected extractors joined by '\+', got 'concat'\. Write it like"),
        ("concat:pixels+pixels", r"^Expected extractors joined by '\+', got 'concat:pixels'"),
        ({"name": "concat"}, r"does not fit: concat has one option, of: a list of two or more"),
        ({"name": "concat", "options": {"of": ["pixels"]}}, r"concat has one option, of"),
        ({"name": "concat", "options": {"of": "pixels+pixels"}}, r"concat has one option, of"),
        ({"name": "concat", "options": {"of": ["pixels", 5]}}, r"expected text, like name:key=value, or a table"),
        ({"name": "concat", "options": {"of": ["pixels", {"nam": "pixels"}]}}, r"concat has one option, of"),
        ({"name": "concat", "options": {"of": ["pixels", "pixels"], "k": 1}}, r"concat has one option, of"),
        (
            {"name": "concat", "options": {"of": ["pixels", {"name": "concat", "options": {"of": ["a", "b"]}}]}},
            r"none of them concat",
        ),
        ({"name": "pixels+pixels"}, r"^Unknown extractor 'pixels\+pixels'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(extractor: object, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        built(extractor)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: resolve(spec("pixels", dataset="digits+digits"), registry.load()), "Unknown dataset 'digits+digits'"),
        (lambda: build(registry.load(), "dataset", Component(name="concat", options={"of": ["digits", "digits"]})),
         "Unknown dataset 'concat'"),
        (lambda: resolve(spec("pixels+pixles"), registry.load()), "Unknown extractor 'pixles'"),
    ],
)  # fmt: skip
def test_no_other_role_joins_and_every_part_exists(refused: Callable[[], object], said: str, refusal: Refusal) -> None:
    assert refusal(refused, SpecError).startswith(said)


def test_the_digest_names_every_option_of_every_part() -> None:
    short, long = whole("pixels:size=8+pixels"), whole("pixels:flat=yes,size=8+pixels:size=none")
    assert short == long
    plain = {"size": None, "flat": True, "mode": "stored"}
    of = [{"name": "pixels", "options": {**plain, "size": 8}}, {"name": "pixels", "options": plain}]
    assert json.loads(short.model_dump_json())["extractor"] == {"name": "concat", "options": {"of": of}}
    assert Spec.model_validate_json(short.model_dump_json()) == short
    others = [whole(other).digest for other in ("pixels+pixels:size=8", "pixels:size=8+pixels:mode=L", "pixels:size=8")]
    assert len({short.digest, *others}) == 4


def test_a_toml_file_joins_in_one_line_or_as_a_list_that_is_never_split(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('extractor = "pixels+pixels:size=4"')
    assert spec(**read_toml(file, "spec")).extractor == Component.parse_extractor("pixels+pixels:size=4")
    path = 'name = "checkpoint", options = {path = "a+b"}'
    file.write_text(f'extractor = {{name = "concat", options = {{of = ["pixels", {{{path}}}]}}}}')
    assert [part.options for part in spec(**read_toml(file, "spec")).extractor.parts] == [{}, {"path": "a+b"}]
    file.write_text(f"extractor = {{{path}}}")
    assert spec(**read_toml(file, "spec")).extractor == Component(name="checkpoint", options={"path": "a+b"})


def test_features_are_those_of_the_parts_side_by_side_each_of_norm_1(fresh_cache: Path) -> None:
    images, joined = pictures(40), built(JOINED)
    alone = [features(part, images).flatten(1) for part in joined.parts]
    assert [part.shape for part in alone] == [(40, 48), (40, 64)]
    expected = torch.cat([part / part.norm(dim=1, keepdim=True) for part in alone], 1)
    assert torch.allclose(features(joined, images), expected)


def test_scales_of_the_parts_do_not_count() -> None:
    rows = torch.rand(8, 3)
    assert torch.allclose(concatenate_features([rows, 1000 * rows]), concatenate_features([rows, rows]))
    assert torch.equal(concatenate_features([torch.zeros(2, 3), torch.zeros(2, 1, 2)]), torch.zeros(2, 5))


def test_a_part_shares_its_cache_with_the_extractor_alone(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, joined = pictures(5), built("pixels+pixels:size=4")
    for part in joined.parts:
        features(part, images)
    monkeypatch.setattr(Pixels, "prepare", lambda *_: pytest.fail("it was extracted again"))
    assert features(joined, images).shape == (5, 3 * 64 + 3 * 16)


def test_a_part_named_twice_is_extracted_once(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = Mock(side_effect=extraction.extract_features)
    monkeypatch.setattr(extraction, "extract_features", extract)
    twice = features(built("pixels+pixels"), pictures(5))
    assert extract.call_count == 1
    assert torch.equal(twice[:, :192], twice[:, 192:])


def test_the_part_that_fails_is_named(fresh_cache: Path) -> None:
    @dataclass(frozen=True)
    class Squares(Pixels):
        name: ClassVar[str] = "squares"

        def open(self, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
            raise RuntimeError("no luck")

    with pytest.raises(ComponentFailed, match=r"^Opening extractor 'squares' failed: RuntimeError: no luck"):
        features(Concat((Pixels(), Squares())), pictures(2))


def test_a_result_names_who_brought_every_part(result: Result) -> None:
    assert list(result.components) == ["learner", "extractor", "extractor.2", "dataset"]
    assert result.components["extractor.2"] == result.components["extractor"]
    assert result.task.example_shape == (64 + 16,)
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_who_brought_a_part_is_checked(result: Result) -> None:
    def said(**changed: Any) -> list[str]:
        components = {role: changed.get(role, value) for role, value in result.components.items()}
        other = result.model_copy(update={"components": {role: value for role, value in components.items() if value}})
        return [field for field, _ in check_provenance(other, installed) if field.startswith("components")]

    installed = ReviewContext.read(Path("leaderboard"), registry.load()).installed
    second = result.components["extractor.2"]
    assert said() == []
    assert said(**{"extractor.2": None}) == ["components"]
    assert said(**{"extractor.2": second.model_copy(update={"plugin": "other"})}) == ["components.extractor.2.plugin"]
    parts = Component.parse_extractor("pixels+nowhere")
    result = result.model_copy(update={"spec": result.spec.model_copy(update={"extractor": parts})})
    assert said() == ["components.extractor.2.distribution"]


def test_a_rerun_asks_for_every_part(result: Result) -> None:
    assert rerun_seeds(result, None, session(registry.load())).outcome == "same predictions"
    stranger = result.components["extractor.2"].model_copy(update={"version": "7"})
    other = result.model_copy(update={"components": {**result.components, "extractor.2": stranger}})
    with pytest.raises(
        NotReproducible, match=r"dpbench-vision 7 brings extractor 'pixels'; here dpbench-vision .* does"
    ):
        rerun_seeds(other, None, session(registry.load()))


def test_a_board_fixes_several_extractors(tmp_path: Path, result: Result) -> None:
    text = Path("leaderboard/boards/digits-eps1.toml").read_text(encoding="utf-8").replace('"digits-eps1"', '"joined"')
    file = tmp_path / "joined.toml"
    file.write_text(
        text.replace('"pixels"', '"pixels+pixels:size=4"').replace("seeds = 5", "seeds = 1"), encoding="utf-8"
    )
    plugins, asked = registry.load(), {"learner": "dp-sgd:steps=3"}
    board = boards.fill_in_board_defaults(Board.read(file), plugins)
    assert board == Board.model_validate_json(board.model_dump_json())
    assert board.extractor == make_component_record(
        build(plugins, "extractor", Component.parse_extractor("pixels+pixels:size=4"))
    )
    entry = boards.make_entry_spec(board, asked, plugins, "the test")
    assert find_protocol_differences(board, result.spec.model_copy(update={"public_labels": entry.public_labels})) == []
    assert [key for key, *_ in find_protocol_differences(board, whole("pixels:size=4+pixels"))][:1] == ["extractor"]


def test_a_sweep_walks_extractors_that_are_joined() -> None:
    def grid(**tables: Any) -> Any:
        fixed = {"learner": "dp-sgd", **tables.pop("fixed", {})}
        return read_grid({"name": "tiny", "fixed": fixed, **tables}, registry.load())

    whole = {"name": "concat", "options": {"of": ["pixels", "pixels:size=4"]}}
    both = grid(grid={"extractor": ["pixels", "pixels+pixels:size=4", whole]})
    assert [str(cell.spec.extractor) for cell in both.cells] == ["pixels", "pixels+pixels:size=4"]
    assert both.duplicates == 1
    for fixed in ("pixels+pixels", whole):
        with pytest.raises(
            SpecError, match=r"^Expected one extractor beside 'extractor.size' in .*: whose option is it"
        ):
            grid(fixed={"extractor": fixed}, grid={"extractor.size": [4, 8]})
    with pytest.raises(SpecError, match=r"^Expected 'extractor' beside 'extractor.size'"):
        grid(fixed={"extractor": {"name": "concat"}}, grid={"extractor.size": [4, 8]})


def test_what_the_weights_have_seen_is_stated_by_each_part() -> None:
    class Silent(Pixels):
        trained_on = ""

    class Seen(Pixels):
        trained_on = "ImageNet-1k"

    assert describe_training_data(built("pixels")) == "nothing"
    assert describe_training_data(built(JOINED)) == "nothing"
    assert describe_training_data(Silent()) is None
    assert describe_training_data(Concat((Seen(), Silent(), Seen()))) == "ImageNet-1k, not stated"
    made = session().run(spec(JOINED))
    assert made.task.trained_on == "nothing" and '"trained_on":"nothing"' in made.model_dump_json()


def test_check_holds_each_part_to_the_laws() -> None:
    laws = list(check_laws(registry.load(), "pixels+pixels:size=4"))
    assert {law.partition(": ")[0] for law, *_ in laws} == {"extractor pixels", "extractor pixels:size=4"}
    assert not [law for law in laws if law.complaint]
    for text in ("pixels+pixles", "pixles+pixels"):
        with pytest.raises(SpecError, match=r"^Unknown extractor 'pixles'"):
            list(check_laws(registry.load(), text))
    folder = {law: complaint for law, complaint, _ in check_laws(registry.load(), "imagefolder:/a+b")}
    assert "Expected images in /a+b" in str(folder["dataset imagefolder: loading repeats"])


@pytest.mark.lab
def test_an_inspection_takes_them_too() -> None:
    from dpbench_lab.inspect.report import make_request

    asked = make_request(spec(JOINED, learner="public-only"), (), read_private=False, pairs=50, svm_c=100.0)
    assert str(asked.spec.extractor) == str(asked.extractor) == JOINED


def test_the_list_says_that_extractors_combine(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, said in (("extractors", 1), ("learners", 0)):
        assert call("list", kind) == 0
        assert capsys.readouterr().out.count("Extractors combine with +, like pixels:size=8+scatternet") == said


@pytest.mark.slow
def test_a_run_takes_them_from_the_command_line(
    fresh_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "run --learner dp-sgd:steps=3 --dataset digits --extractor pixels+pixels:size=4 --seeds 1 --out"
    assert call(*asked.split(), tmp_path) == 0
    assert "dp-sgd (set by hand) on digits (pixels+pixels:size=4)" in capsys.readouterr().out
    (file,) = tmp_path.glob("*.json")
    assert [part.options["size"] for part in Result.read(file).spec.extractor.parts] == [None, 4]
