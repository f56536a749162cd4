"""The laws of a feature extractor."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dpbench.api import Extractor
from dpbench.data.engine import are_features_close
from dpbench.data.reading import make_image_preparer
from dpbench.errors import LawBroken
from dpbench.testing.laws import Laws, NotTested, expect


class ExtractorLaws(Laws):
    """The laws of a feature extractor: inherit and set `extractor`."""

    extractor: ClassVar[Extractor]

    def subject(self) -> Extractor:
        """Return the extractor under test."""
        extractor = getattr(type(self), "extractor", None)
        if not isinstance(extractor, Extractor):
            raise LawBroken(
                f"Set `extractor = YourExtractor(...)` in {type(self).__name__}; a suite without one tests nothing."
            )
        return extractor

    def test_features_ignore_other_images(self) -> None:
        """The features of an image are the same alone and in a batch (no batch statistics)."""
        prepared = self._prepare_images("RGB")
        embed = self.subject().open(torch.device("cpu"))
        among = embed(prepared)
        alone = torch.cat([embed(prepared[[row]]) for row in range(len(prepared))])
        expect(
            torch.allclose(among, alone, rtol=1e-3, atol=1e-3 * float(among.abs().mean())),
            "Features of an image depend on its batch.",
        )

    def test_an_image_is_prepared_alone(self) -> None:
        """A prepared image is the same in another order, after other images and from a new instance."""
        images = self._images("RGB", (0.1, 1.0))
        fresh: Extractor = dataclasses.replace(self.subject())  # type: ignore[type-var]
        there, again = make_image_preparer(images, self.subject()), make_image_preparer(images, fresh)
        places = range(len(images))
        first, third = there(places, thorough=True), there(places)
        second = again(places[::-1], thorough=True)[::-1]
        for tensor, two, three in zip(first, second, third, strict=True):
            same = torch.equal(tensor, two) and torch.equal(tensor, three)
            expect(same, "What prepare makes of an image follows from other images.")

    def test_features_repeat(self) -> None:
        """Opening the extractor twice gives the same map, and preparing an image twice gives the same tensor."""
        first, second = (self.subject().open(torch.device("cpu"))(self._prepare_images("RGB")) for _ in range(2))
        expect(torch.equal(first, second), "Features of the same images differ between two extractions.")

    def test_features_are_finite_float32_rows(self) -> None:
        """Each RGB, RGBA or grey image gives a row of finite features, in float32 or float16."""
        for mode in ("RGB", "RGBA", "L"):
            features = self.subject().open(torch.device("cpu"))(self._prepare_images(mode))
            real = features.dtype in {torch.float32, torch.float16}
            kept = real and len(features) == 5 and bool(features.isfinite().all())
            expect(kept, f"Features of {mode} images are {features.dtype} {tuple(features.shape)}, or not finite.")

    def test_its_module_gives_its_features(self) -> None:
        """The module that `as_module` returns computes the features of `open`: dpbench may run either."""
        module = self.subject().as_module()
        if module is None:
            return
        prepared = self._prepare_images("RGB")
        with torch.inference_mode():
            found, expected = module(prepared), self.subject().open(torch.device("cpu"))(prepared)
        expect(are_features_close(found, expected), "The module that as_module returns gives other features than open.")

    def test_weights_and_version_name_the_features(self) -> None:
        """The digest of the weights is stable and the extractor has a version; both are part of the cache key."""
        expect(self.subject().weights() == self.subject().weights(), "The digest of the weights changes.")
        expect(bool(self.subject().version), "The extractor has no version.")

    def _prepare_images(self, mode: str) -> Tensor:
        return torch.stack([self.subject().prepare(image) for image in self._images(mode)])

    def _images(self, mode: str, levels: tuple[float, float] = (0.3, 0.8)) -> list[Image.Image]:
        """Return five images of increasing brightness, to reveal an extractor that remembers a maximum."""
        if self.subject().made_elsewhere:
            raise NotTested("Features made elsewhere exist for their own images only, and these are others.")
        pixels = np.random.default_rng(0).integers(0, 256, (5, 40, 32, 4), dtype=np.uint8)
        shares = np.linspace(*levels, 5)[:, None, None, None]
        return [Image.fromarray(image, "RGBA").convert(mode) for image in (pixels * shares).astype(np.uint8)]
