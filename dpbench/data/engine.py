"""Choose the engine of an extractor's network: onnxruntime on a CPU if its features agree with torch's, else torch.

On a CPU, onnxruntime computes networks for photographs two to four times as fast as torch. The module that an
extractor's `as_module` returns is exported once to an ONNX graph, which is kept in `networks/` of the cache. The engine
is not part of a feature's identity, because the features of both engines agree: before any image is read, both compute
the features of random images, and dpbench uses onnxruntime only if no number differs by more than `AGREEMENT`
deviations. The choice depends on the extractor, the device and the public number of images, and on no image.

A graph decides what is computed from private images, so graphs are kept like compiled code: in a folder that only the
user can write (`own_folders`), with their digests.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dpbench.api import Extractor
from dpbench.support import progress
from dpbench.support.code import code_digest
from dpbench.support.fields import list_changed_fields
from dpbench.support.files import canonical_digest
from dpbench.support.own_folders import create_cache_entry, is_cache_entry_intact, prepare_user_only_folder
from dpbench.support.plugin_calls import call_plugin
from dpbench.support.untrusted import make_printable

if TYPE_CHECKING:
    from collections.abc import Iterator

Network = Callable[[Tensor], Tensor]
BATCH = 32  # images a network sees at once: larger ones are slower on a processor, whose cache they leave
LEAST = 1024  # images of a split: with fewer, exporting a network takes longer than it saves
AGREEMENT = 1e-4  # deviations of the features: what rounding may change in a number
SIDE = 96  # pixels of the random images
GRAPH = "graph.onnx"


@dataclasses.dataclass(frozen=True)
class InferenceEngine:
    """A library that computes an extractor's network."""

    name: str
    """The library and its version, as results and the cache's manifests state it."""
    device: torch.device
    open: Callable[[Extractor], Network]
    """Loads the network of an extractor, which must equal the extractor that the engine was chosen for.

    The network maps prepared images (`BATCH`, *prepared_shape) to features (`BATCH`, *example_shape).
    """
    is_stateless: bool = False
    """Whether the network is a graph, which keeps nothing between calls."""


def choose_inference_engine(extractor: Extractor, device: torch.device, image_count: int) -> InferenceEngine:
    """Return the engine that computes the features of a split with this many images.

    torch is chosen for other devices than CPUs, for fewer than `LEAST` images, and if the extractor returns no module
    to export. It is also chosen if the module cannot be exported or onnxruntime computes other features; the reason is
    then printed on stderr.

    Raises:
        ComponentFailed: the extractor raised.
    """
    engine = InferenceEngine(
        f"torch {torch.__version__}", device, lambda extractor: _open_torch_network(extractor, device)
    )
    if device.type != "cpu":
        reason = "onnxruntime computes on CPUs only"
    elif image_count < LEAST:
        reason = f"onnxruntime computes splits of {LEAST:,} images or more"
    elif (network := call_plugin(f"The network of extractor {extractor.name!r}", extractor.as_module)) is None:
        reason = "the extractor returns no module for onnxruntime"
    else:
        try:
            engine, reason = _make_onnx_engine(extractor, network), "it gives the same features as torch"
        except _UnsupportedNetwork as unsupported:
            progress.print_progress_line(
                f"{unsupported} torch computes extractor {extractor.name!r} instead, which takes longer."
            )
            return engine
    if progress.is_verbose():
        progress.print_progress_line(f"{engine.name} computes extractor {extractor.name!r} on {device.type}: {reason}.")
    return engine


class _UnsupportedNetwork(Exception):
    """Raised if onnxruntime cannot compute a network; the message is one sentence with the reason."""


def _open_torch_network(extractor: Extractor, device: torch.device) -> Network:
    network: Network = call_plugin(f"Opening extractor {extractor.name!r}", extractor.open, device)
    return network


def _make_onnx_engine(extractor: Extractor, network: nn.Module) -> InferenceEngine:
    """Return onnxruntime as the engine after checking that it agrees with torch on random images."""
    try:
        import onnxruntime
    except ImportError as error:
        raise _UnsupportedNetwork(
            f"The package onnxruntime cannot be imported ({first_line_of_error(error)})."
        ) from error
    images = _make_random_images(extractor)
    try:
        graph = _load_graph(extractor, network, images)
        embed = _open_graph(graph)
        found, again = embed(images), embed(images)
    except Exception as error:  # whatever torch's export or onnxruntime raises
        raise _UnsupportedNetwork(f"onnxruntime cannot compute the network: {first_line_of_error(error)}.") from error
    expected = _open_torch_network(extractor, torch.device("cpu"))(images)
    if not torch.equal(found, again):
        raise _UnsupportedNetwork("onnxruntime gives other features for the same images at each call.")
    if not are_features_close(found, expected):
        raise _UnsupportedNetwork(
            f"onnxruntime and torch differ by more than {AGREEMENT:g} deviations of the features."
        )
    cpu = torch.device("cpu")
    return InferenceEngine(
        f"onnxruntime {onnxruntime.__version__}", cpu, lambda _: _open_graph(graph), is_stateless=True
    )


def are_features_close(computed: Tensor, expected: Tensor) -> bool:
    """Return whether no feature differs from the expected one by more than rounding may change; see `AGREEMENT`.

    The limit is `AGREEMENT` times the standard deviation of all expected features, plus the last bit of each. Features
    of another shape or type are not close.
    """
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        return False
    actual, other = computed.double(), expected.double()
    allowed = AGREEMENT * other.std(correction=0) + torch.finfo(expected.dtype).eps * other.abs()
    return bool(((actual - other).abs() <= allowed).all())


def _make_random_images(extractor: Extractor) -> Tensor:
    """Return random images as the extractor prepares them, (`BATCH`, *prepared_shape)."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, SIDE, SIDE, 3), dtype=np.uint8)
    # Smooth ones too: noise alone leaves filters for shapes unused.
    smooth = [Image.fromarray(image[:4, :4]).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in pixels[::2]]
    images = [image for pair in zip(smooth, map(Image.fromarray, pixels[1::2]), strict=True) for image in pair]
    try:
        prepared = torch.stack([extractor.prepare(image) for image in images])
        other = extractor.prepare(images[0].resize((SIDE // 2, SIDE)))
    except Exception as error:  # an extractor of other images than colour photographs
        raise _UnsupportedNetwork(f"Random colour images cannot be prepared: {first_line_of_error(error)}.") from error
    if other.shape != prepared.shape[1:]:
        raise _UnsupportedNetwork("The shape of a prepared image depends on its size, and a graph has one shape.")
    return prepared


def _load_graph(extractor: Extractor, network: nn.Module, images: Tensor) -> bytes:
    """Return the network's graph from the cache; export and cache it if no trustworthy graph is there."""
    folder, trouble = prepare_user_only_folder("networks", "exported networks")
    entry = folder and folder / _graph_cache_key(extractor, images)
    if entry and entry.exists():
        if is_cache_entry_intact(entry):
            return (entry / GRAPH).read_bytes()
        trouble = f"The exported network in {entry} is damaged. "
        shutil.rmtree(entry, ignore_errors=True)
    if trouble:
        progress.print_progress_line(f"{trouble}The network of extractor {extractor.name!r} is exported again.")
    graph = _export_graph(network, images, extractor.name)
    if entry:
        with suppress(OSError), create_cache_entry(entry) as new:  # a full disk costs the next run an export
            (new / GRAPH).write_bytes(graph)
    return graph


def _graph_cache_key(extractor: Extractor, images: Tensor) -> str:
    from importlib.metadata import version

    return canonical_digest(
        {
            "extractor": extractor.name,
            "version": extractor.version,
            "code": code_digest(type(extractor)),
            "options": list_changed_fields(extractor),
            "weights": extractor.weights(),
            "shape": list(images.shape),
            "exported by": [torch.__version__, version("onnx"), version("onnxscript")],
        }
    )[:32]


def _open_graph(graph: bytes) -> Network:
    """Return a function that runs a graph on one thread, because extraction already runs one thread per batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors, which are raised as well
    session: Any = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda prepared: torch.from_numpy(session.run(None, {name: prepared.numpy()})[0])


def _export_graph(network: nn.Module, images: Tensor, name: str) -> bytes:
    network = network.eval().requires_grad_(False)
    with progress.show_progress_bar(f"Exporting {name} for onnxruntime", 1) as advance, suppress_export_output():
        exported: Any = torch.onnx.export(network, (images,), dynamo=True, verbose=False)
        graph: bytes = exported.model_proto.SerializeToString()
        advance(1)
    return graph


@contextmanager
def suppress_export_output() -> Iterator[None]:
    """Suppress the logs and warnings of torch's export while the block runs, and restore torch's random state."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line_of_error(error: Exception) -> str:
    """Return the first line of an error's message, printable, without full stop; the error's type if it is empty."""
    return make_printable((str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip("."))
