"""Take the fingerprint of any installed component.

The fingerprint of an extractor is its features of eight images, its version and the digest of its weights. Four images
are in colour and four in grey; all have 64 x 64 pixels and are equal on every machine. For each image, the fingerprint
keeps 24 sums of the features with random signs, so a change of any feature changes all sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from dpbench.api import Extractor
from dpbench.errors import DpbenchError
from dpbench.harness.fingerprints.core import fingerprint_core
from dpbench.harness.fingerprints.learners import choose_auto_settings, fingerprint_learner
from dpbench.records.fingerprints import ComponentBehaviour, FingerprintKind, FitFingerprint, locate_fingerprint_folder
from dpbench.registry import Registry
from dpbench.registry.same_code import FingerprintStore
from dpbench.support.plugin_calls import call_plugin

SIDE, IMAGES_PER_MODE, SUMS = 64, 4, 24
MODES = {"colour": (SIDE, SIDE, 3), "grey": (SIDE, SIDE)}


def take_fingerprint(
    kind: FingerprintKind, name: str, settings: Mapping[str, Any], plugins: Registry
) -> ComponentBehaviour:
    """Return the fingerprint of a component with these settings. A learner is fitted on a small task at two epsilons.

    If the component cannot be built with these settings, the fingerprint is marked as not covered.
    """
    if kind == "core":
        return ComponentBehaviour(task=fingerprint_core(), fits={})
    try:
        component = plugins.build(kind, name, settings)
    except DpbenchError as error:
        return ComponentBehaviour(task="", fits={}, not_covered=str(error))
    return fingerprint_learner(component, plugins) if kind == "learner" else fingerprint_extractor(component)


def compute_auto_settings(name: str, requested: Mapping[str, Any], plugins: Registry) -> dict[str, Any]:
    """Return the values that the learner chooses for the settings left open in `requested`, by task and epsilon.

    If the learner cannot be built, the only entry is the error message, with an empty key.
    """
    try:
        return choose_auto_settings(plugins.build("learner", name, requested), plugins)
    except DpbenchError as error:
        return {"": str(error)}


def open_fingerprint_store(plugins: Registry, folder: Path | None = None) -> FingerprintStore:
    """Return the fingerprints stored in a folder; a missing fingerprint is taken from the installed code on request."""
    return FingerprintStore(
        folder or locate_fingerprint_folder(),
        lambda kind, name, settings: take_fingerprint(kind, name, settings, plugins),
        lambda name, asked: compute_auto_settings(name, asked, plugins),
    )


def fingerprint_extractor(extractor: Extractor) -> ComponentBehaviour:
    """Return the fingerprint of an extractor. It is marked as not covered if the weights are not on this machine."""
    who = f"extractor {extractor.name!r}"
    try:
        if not call_plugin(f"present of {who}", extractor.present):
            return ComponentBehaviour(task="", fits={}, not_covered=f"The weights of {who} are not on this machine.")
        weights = call_plugin(f"weights of {who}", extractor.weights)
        network = call_plugin(f"Opening {who}", extractor.open, torch.device("cpu"))
    except DpbenchError as error:
        return ComponentBehaviour(task="", fits={}, not_covered=str(error))
    fits: dict[str, FitFingerprint | str] = {}
    for mode in MODES:
        try:
            with torch.no_grad():
                prepared = torch.stack(
                    [call_plugin(who, extractor.prepare, image) for image in make_fixed_images(mode)]
                )
                fits[mode] = _summarise_features(
                    call_plugin(who, network, prepared).double().numpy().reshape(IMAGES_PER_MODE, -1)
                )
        except DpbenchError as error:  # an extractor may take images in colour only
            fits[mode] = str(error)
    return ComponentBehaviour(task=f"version {extractor.version}, weights {weights}", fits=fits)


def make_fixed_images(mode: str) -> list[Image.Image]:
    """Return four fixed images of waves and noise, in colour or in grey."""
    draw = np.random.default_rng([7, len(MODES[mode])])
    places = np.mgrid[:SIDE, :SIDE] / SIDE
    found = []
    for _ in range(IMAGES_PER_MODE):
        wave = np.sin(2 * np.pi * np.tensordot(draw.integers(1, 6, 2), places, 1) + draw.uniform(0, 6))
        shape = MODES[mode]
        values = 128 + 70 * wave.reshape(SIDE, SIDE, *[1] * (len(shape) - 2)) + draw.normal(0, 25, shape)
        found.append(Image.fromarray(values.clip(0, 255).astype(np.uint8)))
    return found


def _summarise_features(features: np.ndarray) -> FitFingerprint:
    signs = 2 * np.random.default_rng(5).integers(0, 2, (features.shape[1], SUMS)) - 1
    return FitFingerprint.from_scores(features @ signs / features.shape[1] ** 0.5, len(features))
