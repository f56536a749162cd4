"""A predictor as an ONNX graph: the same scores row by row, for any number of rows, or a refusal."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import Tensor

from dpbench import Predict
from dpbench.errors import DataError, SpecError
from dpbench.models.export import ROWS, export_predictor, onnx_exact_linear
from dpbench.models.model_file import build_model_file
from dpbench.models.process import ModelProcess
from dpbench.models.worker import walk_protobuf_messages
from dpbench.privacy.core.exact.products import DEEPEST
from dpbench.privacy.core.exact.quantised import exact_linear
from dpbench.support.device import find_device
from tests.helpers.models import make_card

CPU = find_device("cpu")
DRAW = torch.Generator().manual_seed(1)
WEIGHT, MEAN, SCALE = torch.randn(3, 4, generator=DRAW), torch.randn(4, generator=DRAW), torch.rand(4, generator=DRAW)


def _run(predict: Predict, *batches: Tensor) -> list[Tensor]:
    graph = export_predictor(predict, tuple(batches[0].shape[1:]), CPU)
    with ModelProcess(build_model_file(graph, make_card())) as process:
        return [process(rows) for rows in batches]


def _fill_in_place(x: Tensor) -> Tensor:
    scores = torch.full((len(x), 3), -1e9)
    scores[:, :2] = (x.sub_(MEAN).div_(SCALE) @ WEIGHT.T)[:, :2]
    return scores.clamp_(min=-5)


def _in_parts(x: Tensor) -> Tensor:
    return torch.cat([part @ WEIGHT.T for part in torch.split(x, 256)])


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "predict",
    [
        _fill_in_place,
        _in_parts,
        lambda x: torch.cat([x[start : start + 256] @ WEIGHT.T for start in range(0, len(x), 256)]),
        lambda x: torch.nn.functional.gelu(x, approximate="tanh") @ WEIGHT.T,
        lambda x: torch.cdist(x, WEIGHT).neg().topk(2, 1).values,
    ],
    ids=["in place", "in parts", "in slices", "gelu", "distances"],
)
def test_what_predictors_do_is_exported_for_any_number_of_rows(predict: Predict) -> None:
    batches = [torch.randn(rows, 4, generator=torch.Generator().manual_seed(2)) for rows in (1, 5 * ROWS + 1)]
    for x, found in zip(batches, _run(predict, *batches), strict=True):
        assert torch.allclose(found.float(), predict(x.clone()), atol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("width", [5, DEEPEST + 3])
def test_the_exact_product_keeps_every_bit(width: int) -> None:
    draw = torch.Generator().manual_seed(width)
    x = torch.randn(50, width, generator=draw) * torch.logspace(-36, 20, 50).unsqueeze(1)  # as small as are cut off
    x[0] = 0
    weight, bias = torch.randn(7, width, generator=draw), torch.randn(7, generator=draw)
    expected = exact_linear(x, weight, bias)
    assert torch.equal(onnx_exact_linear(x, weight, bias), expected)
    (found,) = _run(lambda rows: exact_linear(rows, weight, bias), x)
    assert torch.equal(found.float(), expected)
    assert torch.equal(onnx_exact_linear(x.double(), weight.double()), exact_linear(x.double(), weight.double()))


def test_a_graph_says_nothing_of_the_code_that_it_comes_from() -> None:
    predict = lambda x: exact_linear(x, WEIGHT)
    graph = export_predictor(predict, (4,), CPU)
    assert graph == export_predictor(predict, (4,), CPU)
    model = onnx.ModelProto.FromString(graph)
    assert b".py" not in graph and not any(
        getattr(message, "doc_string", "") for message in walk_protobuf_messages(model)
    )
    (given,), (found,) = model.graph.input, model.graph.output
    assert (given.name, found.name) == ("examples", "scores")


def test_a_predictor_that_decides_by_values_or_leaves_torch_is_refused() -> None:
    for predict in (
        lambda x: x if x.sum() > 0 else -x,
        lambda x: torch.from_numpy(x.numpy()[:, ::-1].copy()),
    ):
        with pytest.raises(SpecError, match="more than tensor operations"):
            export_predictor(predict, (4,), CPU)
    with pytest.raises(SpecError, match="draws at random"):
        export_predictor(lambda x: x + torch.rand_like(x), (4,), CPU)
    seen = torch.zeros(2)
    with pytest.raises(SpecError, match=r"remembers|more than tensor operations"):
        export_predictor(lambda x: x[:, :2] + seen.copy_(x[0, :2]), (4,), CPU)
    with pytest.raises(DataError, match=r"."):
        _run(lambda x: seen, torch.randn(3, 4))
