"""Choose the engine of an extractor's network: onnxruntime on a CPU if its features agree with torch's, else torch.

On a CPU, onnxruntime computes networks for photographs two to four times as fast as torch. The module that an
extractor's `as_module` returns is exported once to an ONNX graph, which is kept in `networks/` of the cache. The engine
is not part of a feature's identity, because the features of both engines agree: before any image is read, both compute
the features of random images, and dpbench uses onnxruntime only if no number differs by more than `AGREEMENT`
deviations. The choice depends on the extractor, the device and the public number of images, and on no image.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from dpbench.api import Extractor
from dpbench.errors import DamagedFile, OutputError
from dpbench.support import progress
from dpbench.support.code import code_digest
from dpbench.support.fields import changed_fields
from dpbench.support.files import canonical_digest, write_atomically
from dpbench.support.paths import cache_folder
from dpbench.support.plugin_calls import call_plugin
from dpbench.support.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxruntime import InferenceSession

Network = Callable[[Tensor], Tensor]
BATCH = 32  # images a network sees at once: larger ones are slower on a processor, whose cache they leave
LEAST = 1024  # images of a split: with fewer, exporting a network takes longer than it saves
AGREEMENT = 1e-4  # deviations of the features: what rounding may change in a number
SIDE = 96  # pixels of the random images


@dataclasses.dataclass(frozen=True)
class Engine:
    """A library that computes an extractor's network."""

    name: str
    """The library and its version, as results and the cache's manifests state it."""
    device: torch.device
    open: Callable[[], Network]
    """Loads the weights and returns the map (`BATCH`, *prepared_shape) -> (`BATCH`, *example_shape)."""


def choose_engine(extractor: Extractor, device: torch.device, images: int) -> Engine:
    """Return the engine that computes the features of a split with this many images.

    If a network cannot be exported, or onnxruntime computes other features, torch computes it; a line on stderr says
    why.

    Raises:
        ComponentFailed: the extractor raised.
    """
    engine = Engine(f"torch {torch.__version__}", device, lambda: _open_torch_network(extractor, device))
    if device.type == "cpu" and images >= LEAST:
        network = call_plugin(f"The network of extractor {extractor.name!r}", extractor.as_module)
        if network is not None:
            try:
                engine = _make_onnx_engine(extractor, network)
            except _UnsupportedNetwork as reason:
                progress.print_line(
                    f"{reason} torch computes extractor {extractor.name!r} instead, which takes longer."
                )
    if progress.is_verbose():
        progress.print_line(f"Extractor {extractor.name!r} is computed by {engine.name} on {device.type}.")
    return engine


class _UnsupportedNetwork(Exception):
    """Raised if onnxruntime cannot compute a network; the message is one sentence with the reason."""


def _open_torch_network(extractor: Extractor, device: torch.device) -> Network:
    network: Network = call_plugin(f"Opening extractor {extractor.name!r}", extractor.open, device)
    return network


def _make_onnx_engine(extractor: Extractor, network: nn.Module) -> Engine:
    """Return onnxruntime as the engine after checking that it agrees with torch on random images."""
    try:
        import onnxruntime
    except ImportError as error:
        raise _UnsupportedNetwork(f"The package onnxruntime cannot be imported ({_first_line(error)}).") from error
    images = _random_images(extractor)
    try:
        session = _load_session(extractor, network, images)
        found, again = _run_session(session, images), _run_session(session, images)
    except Exception as error:  # whatever torch's export or onnxruntime raises
        raise _UnsupportedNetwork(f"onnxruntime cannot compute the network: {_first_line(error)}.") from error
    expected = _open_torch_network(extractor, torch.device("cpu"))(images)
    if not torch.equal(found, again):
        raise _UnsupportedNetwork("onnxruntime gives other features for the same images at each call.")
    if not are_features_close(found, expected):
        raise _UnsupportedNetwork(
            f"onnxruntime and torch differ by more than {AGREEMENT:g} deviations of the features."
        )
    cpu = torch.device("cpu")
    return Engine(
        f"onnxruntime {onnxruntime.__version__}", cpu, lambda: lambda prepared: _run_session(session, prepared)
    )


def are_features_close(found: Tensor, expected: Tensor) -> bool:
    """Return whether features (c, *example_shape) differ by at most `AGREEMENT` deviations.

    The last bit of float16 features may differ as well.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    actual, other = found.double(), expected.double()
    allowed = AGREEMENT * other.std() + (other.abs() * 2**-10 if expected.dtype == torch.float16 else 0)
    return bool(((actual - other).abs() <= allowed).all())


def _random_images(extractor: Extractor) -> Tensor:
    """Return random images as the extractor prepares them, (`BATCH`, *prepared_shape)."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, SIDE, SIDE, 3), dtype=np.uint8)
    # Smooth ones too: noise alone leaves filters for shapes unused.
    smooth = [Image.fromarray(image[:4, :4]).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in pixels[::2]]
    images = [image for pair in zip(smooth, map(Image.fromarray, pixels[1::2]), strict=True) for image in pair]
    try:
        return torch.stack([extractor.prepare(image) for image in images])
    except Exception as error:  # an extractor of other images than colour photographs
        raise _UnsupportedNetwork(f"Random colour images cannot be prepared: {_first_line(error)}.") from error


def _run_session(session: InferenceSession, prepared: Tensor) -> Tensor:
    features: Any = session.run(None, {session.get_inputs()[0].name: prepared.numpy()})[0]
    return torch.from_numpy(features)


def _load_session(extractor: Extractor, network: nn.Module, images: Tensor) -> InferenceSession:
    """Load a session from the cached graph; export the graph and cache it if there is none."""
    file = cache_folder() / "networks" / f"{_graph_key(extractor, images)}.onnx"
    try:
        return _make_session(_read_graph(file))
    except DamagedFile as damaged:
        progress.print_line(f"{damaged} The network is exported again.")
    except OSError:  # there is none yet, or no cache that can be read
        pass
    graph = _export_graph(network, images, extractor.name)
    digest = hashlib.sha256(graph).digest()
    with suppress(OutputError):  # a cache that cannot be written costs the next run an export
        write_atomically(file, lambda out: out.writelines((graph, digest)))
    return _make_session(graph)


def _read_graph(file: Path) -> bytes:
    content = file.read_bytes()
    if hashlib.sha256(content[:-32]).digest() != content[-32:]:
        raise DamagedFile(f"The cache file {file} fails its checksum.")
    return content[:-32]


def _graph_key(extractor: Extractor, images: Tensor) -> str:
    from importlib.metadata import version

    return canonical_digest(
        {
            "extractor": extractor.name,
            "version": extractor.version,
            "code": code_digest(type(extractor)),
            "options": changed_fields(extractor),
            "weights": extractor.weights(),
            "shape": list(images.shape),
            "exported by": [torch.__version__, version("onnx"), version("onnxscript")],
        }
    )[:32]


def _make_session(graph: bytes) -> InferenceSession:
    """Create a session that uses one thread per call, because extraction runs one thread per batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors, which are raised as well
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _export_graph(network: nn.Module, images: Tensor, name: str) -> bytes:
    network = network.eval().requires_grad_(False)
    with progress.progress_bar(f"Exporting {name} for onnxruntime", 1) as advance, suppress_export_output():
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


def _first_line(error: Exception) -> str:
    return printable((str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip("."))
