"""Features from filters that are patches of random-process images: no photograph and no training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import Extractor, SpecError, hookimpl, setting
from dpbench_plugins.extractors.pixel_values import convert_image_to_tensor
from dpbench_plugins.extractors.vision import Precision

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

MOST = 40_000  # filters
LARGEST = 16  # side of a patch: whitening takes time in proportion to its sixth power
AT_ONCE = 16  # images whose responses are in memory together


@dataclass(frozen=True)
class Patches(Extractor):
    """Responses to whitened patches of images from random processes (after Coates and Ng 2011; Thiry et al. 2021).

    Each `patch` x `patch` patch of an image is centred, divided by its contrast, whitened, and brought to norm 1. Its
    response to a filter is the cosine between patch and filter. The excess of responses over `threshold`, and the
    excess below -`threshold`, are averaged over each of `pool` x `pool` parts of the image. Features are these means to
    the power `power`: d = filters * pool^2. The means have long tails, because few responses are large; principal
    components of their roots say more about the classes.

    Filters are patches of `images` images from each of two random processes, StyleGAN-oriented and dead leaves, which
    `dpbench pretrain randp-wrn16-4` uses too. Half of the filters are mirror images of the others, so an image and its
    mirror image have the same features, and no second pass is needed to average over the two. `seed` chooses the images
    and patches. No photograph and no label is used.

    Images are resized to `size` x `size`; the side of the random processes' images is the next power of two, and at
    least 8. `precision=bfloat16` computes the responses with 8 bits of precision: extraction is 1.4 times as fast on
    processors with bfloat16 instructions. On other processors, float32 responses are rounded.

    Differs from the papers, whose filters are patches or clusters of the training images.
    """

    name = "patches"
    trained_on = "images of random processes"

    filters: int = setting(800, ge=2, le=MOST, says="filters, half of them mirror images of the others")
    patch: int = setting(6, ge=2, le=LARGEST, says="side of a patch in pixels")
    pool: int = setting(2, ge=1, says="parts along a side that responses are averaged over")
    threshold: float = setting(0.1, ge=0, lt=1, says="cosine that a response must exceed")
    power: float = setting(0.5, gt=0, le=1, says="power of the means; 0.5 takes square roots")
    size: int = setting(32, ge=2, says="side in pixels that images are resized to")
    images: int = setting(256, ge=1, says="images of each random process")
    seed: int = setting(0, ge=0, lt=2**63, says="seed of images and patches")
    precision: Precision = setting("float32", says="precision of the computation")

    def __post_init__(self) -> None:
        """Check that `filters` is even, that `patch` and `pool` fit into `size`, and that other settings are valid."""
        if self.filters % 2:
            raise SpecError(
                f"Expected filters={self.filters} of extractor 'patches' to be even: half of the filters are mirror "
                "images of the others."
            )
        if self.patch > self.size:
            raise SpecError(f"Expected patch={self.patch} of extractor 'patches' at most size={self.size}.")
        if self.pool > self.size - self.patch + 1:
            raise SpecError(
                f"Expected pool={self.pool} of extractor 'patches' in 1..{self.size - self.patch + 1}, the number of "
                "positions of a patch along a side."
            )
        if not 0 <= self.threshold < 1:
            raise SpecError(f"Expected threshold={self.threshold} of extractor 'patches' in [0, 1): it cuts a cosine.")
        if not 0 < self.power <= 1:
            raise SpecError(f"Expected power={self.power} of extractor 'patches' in (0, 1]: 0.5 takes square roots.")
        if not 0 <= self.seed < 2**63:
            raise SpecError(f"Expected seed={self.seed} of extractor 'patches' in [0, 2^63).")
        if self.images < 1:
            raise SpecError(f"Expected images={self.images} >= 1 of extractor 'patches', of each random process.")

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32 in [0, 1]; other sizes are resized (bilinear)."""
        return convert_image_to_tensor(image, self.size, "RGB")

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Draw the filters and return the map (c, 3, size, size) -> (c, d) float16."""
        import torch

        from dpbench_plugins.extractors.patch_filters import FilterBank, cut_patches, draw_filter_bank

        drawn = draw_filter_bank(self.filters, self.patch, self.size, self.images, self.seed)
        short = self.precision == "bfloat16"
        rounds = short and device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        kind = torch.bfloat16 if short and not rounds else torch.float32
        filters = FilterBank(drawn.whiten.to(device), drawn.filters.to(device, kind), rounds)
        places = self.size - self.patch + 1

        def compute_features(images: Tensor) -> Tensor:  # (c, 3, size, size) -> (c, d)
            responses = filters.compute_responses(cut_patches(images, self.patch))
            return self._pool_responses(responses.view(len(images), places, places, self.filters))

        def embed(images: Tensor) -> Tensor:
            with torch.inference_mode():
                return torch.cat([compute_features(some) for some in torch.split(images.to(device), AT_ONCE)])

        return embed

    def _pool_responses(self, responses: Tensor) -> Tensor:
        """Pool responses (c, h, w, filters) to features (c, d) float16, averaging each filter and its mirror image."""
        import torch
        from torch.nn.functional import adaptive_avg_pool2d, softshrink

        exceeding = softshrink(responses.permute(0, 3, 1, 2), self.threshold)  # (c, filters, h, w)
        total = adaptive_avg_pool2d(exceeding, self.pool).float()
        above = adaptive_avg_pool2d(exceeding.relu_(), self.pool).float()
        halves = [torch.split(mean, self.filters // 2, 1) for mean in (above, above - total)]
        means = torch.cat([((own + mirrored.flip(3)) / 2).flatten(1) for own, mirrored in halves], 1)
        return means.clamp(min=0).pow(self.power).half()


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractor of this module."""
    return [Patches]
