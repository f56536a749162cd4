"""Linear probes trained by jax_privacy; an optional study, because the library is no requirement of dpbench."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dpbench_lab.reproduce.peers import PeerFits

MICROBATCH = 64  # examples whose gradients are held at a time


class JaxFits(PeerFits):
    """Fits with the clipped gradients, Poisson batches and Gaussian noise of jax_privacy, and the momentum of optax."""

    implementation = "jax_privacy"
    accountants = "pld", "rdp"
    packages = "jax_privacy", "jax", "optax"

    def train(self, seed: int) -> Tensor:
        """Train a head from zero weights; batches are padded with empty rows, so that few shapes are compiled."""
        import jax
        import jax.numpy as jnp
        import optax
        from jax_privacy import batch_selection, clipping, noise_addition

        probe, size, width = self.learner.probe, len(self.x), self.x.shape[1]
        x, y = jnp.asarray(self.x.numpy()), jnp.asarray(self.y.numpy())
        privatizer = noise_addition.gaussian_privatizer(stddev=self.privacy.sigma * probe.clip, prng_key=size + seed)

        def loss(head: Any, rows: Any, labels: Any) -> Any:
            scores = rows @ head[:, :-1].T + head[:, -1]
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()

        gradient = clipping.clipped_grad(
            loss, l2_clip_norm=probe.clip, batch_argnums=(1, 2), microbatch_size=MICROBATCH
        )
        optimizer = optax.sgd(probe.learning_rate, momentum=probe.momentum)

        @jax.jit
        def step(head: Any, states: Any, rows: Any) -> Any:
            total = gradient(head, x[rows], y[rows], is_padding_example=rows < 0)
            noisy, noise = privatizer.update(total, states[0])
            moved, momentum = optimizer.update(noisy / (probe.sample_rate * size), states[1])
            return optax.apply_updates(head, moved), (noise, momentum)

        head = jnp.zeros((self.task.classes, width + 1))
        states = privatizer.init(head), optimizer.init(head)
        batches = batch_selection.CyclicPoissonSampling(probe.sample_rate, probe.steps)
        for rows in batches.batch_iterator(size, rng=seed):
            head, states = step(head, states, batch_selection.pad_to_multiple_of(rows, MICROBATCH))
        return torch.from_numpy(jax.device_get(head).copy())

    def epsilons(self) -> dict[str, float]:
        """Return epsilon of the planned steps, each a Gaussian mechanism on a Poisson sample."""
        import dp_accounting
        from jax_privacy.accounting.accountants import PldAccountantConfig, RdpAccountantConfig

        probe, found = self.learner.probe, {}
        mechanism = dp_accounting.GaussianDpEvent(self.privacy.sigma)
        event = dp_accounting.PoissonSampledDpEvent(probe.sample_rate, mechanism)
        for name, config in zip(self.accountants, (PldAccountantConfig(), RdpAccountantConfig()), strict=True):
            accountant = config.create_accountant().compose(event, probe.steps)
            found[name] = float(accountant.get_epsilon(self.privacy.delta))
        return found
