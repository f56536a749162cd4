"""Contrastive pre-training: a step depends only on the state and its index, so resumed runs give the same weights."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from dpbench import DpbenchError, SpecError
from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.random_images.generators import make_generator
from dpbench_plugins.extractors.randp.augment import augment_images
from dpbench_plugins.extractors.randp.checkpoints import TrainingState, export_checkpoint, unfinished_state_path
from dpbench_plugins.extractors.randp.encoder import PROJECTED, Encoder, make_random_encoder
from dpbench_plugins.extractors.randp.losses import align_uniform_loss, info_nce_loss
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe

MOMENTUM, DECAY = 0.9, 1e-4  # of the optimiser, as in Baradad et al. 2021
SAVE_AFTER = 60.0  # seconds of work that an interruption loses at most, unless a step is longer
FOLLOW = 0.999  # momentum of MoCo's key encoder
Report = Callable[[str, float], None]
Features = Callable[[Tensor], Tensor]


class Pretrainer:
    """An encoder in training, and everything that its next step depends on."""

    def __init__(self, network: str, size: int, recipe: PretrainingRecipe, device: torch.device) -> None:
        """Start at step 0 with random parameters.

        Raises:
            SpecError: the recipe has an embedding, and views of another size than `size`.
        """
        self.network, self.size, self.recipe, self.device, self.done = network, size, recipe, device, 0
        self.view = recipe.view or size
        if recipe.embed and self.view != size:
            raise SpecError(f"Expected view={self.view} to be {size} with embed=true: that layer reads one size alone.")
        self.encoder = make_random_encoder(network, self.view, recipe.seed, device, embed=recipe.embed)
        self.optimiser = torch.optim.SGD(
            self.encoder.parameters(), lr=recipe.rate(0), momentum=MOMENTUM, weight_decay=DECAY
        )
        self._generate = make_generator(recipe.generator, recipe.seed, recipe.canvas)
        self._keys = copy.deepcopy(self.encoder).requires_grad_(False) if recipe.loss == "moco" else None
        slots = torch.arange(recipe.queue if self._keys else 0, device=device)
        self._queue = normalize(
            ImageRandomState(recipe.seed, slots, purpose=3).normal(PROJECTED), dim=1
        )  # (k, projected)

    def step(self) -> Tensor:
        """Train on the next images and return their loss."""
        first, second = self.views(self.done)
        loss = self._loss(first, second)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate(self.done)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.done += 1
        return loss.detach()

    def views(self, step: int) -> tuple[Tensor, Tensor]:
        """Return two views (batch, 3, view, view) of the images of a step; every step has new images."""
        start = step * self.recipe.batch
        indices = torch.arange(start, start + self.recipe.batch, device=self.device)
        with torch.no_grad():
            images = self._generate(indices)
            draws = (ImageRandomState(self.recipe.seed, indices, purpose) for purpose in (1, 2))
            first, second = (augment_images(images, draw, self.view) for draw in draws)
        return first, second

    def _loss(self, first: Tensor, second: Tensor) -> Tensor:
        if self._keys is None:
            x, y = self._embed(self.encoder, torch.cat([first, second])).chunk(2)
            return align_uniform_loss(x, y)
        with torch.no_grad():
            for key, query in zip(self._keys.parameters(), self.encoder.parameters(), strict=True):
                key.lerp_(query, 1 - FOLLOW)
            keys = self._embed(self._keys, second)
        loss = info_nce_loss(self._embed(self.encoder, first), keys, self._queue.clone())
        slots = torch.arange(self.done * len(keys), (self.done + 1) * len(keys), device=self.device)
        self._queue[slots[-len(self._queue) :] % len(self._queue)] = keys[-len(self._queue) :]
        return loss

    def _embed(self, encoder: Encoder, views: Tensor) -> Tensor:
        """Return (n, projected) float32 unit vectors, computed in the recipe's precision."""
        with torch.autocast(self.device.type, torch.bfloat16, self.recipe.precision == "bfloat16"):
            embedded: Tensor = encoder.embed(views)
        return encoder.project(embedded.float())

    def state(self) -> TrainingState:
        """Return everything that the next step depends on."""
        tensors = {f"encoder.{name}": value for name, value in self.encoder.state_dict().items()}
        for name, parameter in self.encoder.named_parameters():
            velocity = self.optimiser.state[parameter].get("momentum_buffer")
            if velocity is not None:
                tensors[f"velocity.{name}"] = velocity
        if self._keys is not None:
            tensors |= {f"keys.{name}": value for name, value in self._keys.state_dict().items()}
            tensors["queue"] = self._queue
        return TrainingState(self.network, self.size, self.recipe, self.done, tensors)

    def restore_state(self, state: TrainingState) -> None:
        """Resume from a state of the same network and recipe."""
        self.done = state.done
        self.encoder.load_state_dict(state.part("encoder."))
        for name, parameter in self.encoder.named_parameters():
            if f"velocity.{name}" in state.tensors:
                self.optimiser.state[parameter]["momentum_buffer"] = state.tensors[f"velocity.{name}"].to(self.device)
        if self._keys is not None:
            self._keys.load_state_dict(state.part("keys."))
            self._queue.copy_(state.tensors["queue"])


def pretrain(training: Pretrainer, out: Path, resume: bool, report: Report, probe: Callable[[Features], float]) -> None:
    """Train to the recipe's last step and write the checkpoint `out`; until then, save the state next to it.

    Reports `step` (steps done) and `loss` after each step, and `probe` every `probe_every` steps. `probe` decides
    nothing: the checkpoint is always that of the last step.

    Raises:
        SpecError: `out` already exists, or an unfinished state does and `resume` is false.
        DataMissing: there is nothing to resume.
        DpbenchError: the loss is not finite, a batch does not fit in memory, or a weight does not fit half precision.
    """
    recipe, kept = training.recipe, unfinished_state_path(out)
    if out.exists():
        raise SpecError(f"Checkpoint {out} already exists. Choose another --out, or move it away.")
    if resume:
        training.restore_state(TrainingState.load(kept, training.state()))
    elif kept.exists():
        raise SpecError(f"{kept} holds an unfinished pre-training. Continue with --resume, or delete it to start over.")
    else:
        training.state().save(kept)  # so that an unwritable folder is found before the first step
    report("step", training.done)
    saved = time.monotonic()
    while training.done < recipe.steps:
        if training.done % recipe.probe_every == 0:
            _report_probe(training, report, probe)
        loss = _take_training_step(training)
        if not abs(loss) < float("inf"):
            raise DpbenchError(f"The loss of step {training.done} is {loss}. Set a smaller learning_rate.")
        report("loss", loss)
        report("step", training.done)
        if time.monotonic() - saved >= SAVE_AFTER:
            training.state().save(kept)
            saved = time.monotonic()
    _report_probe(training, report, probe)
    export_checkpoint(training.encoder.state_dict(), training.state(), out)
    kept.unlink()


def _take_training_step(training: Pretrainer) -> float:
    try:
        return float(training.step())
    except torch.OutOfMemoryError as error:
        raise DpbenchError(
            f"A batch of {training.recipe.batch} images does not fit in memory. Set a smaller batch."
        ) from error


def _report_probe(training: Pretrainer, report: Report, probe: Callable[[Features], float]) -> None:
    if training.recipe.probe != "none":
        report("probe", probe(lambda images: training.encoder.embed(images.to(training.device))))
