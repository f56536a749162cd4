"""Every broken core that we know, once: the museum exhibits it, audits reject it, and mutation tests run it."""

from __future__ import annotations

from dpbench_lab.museum.cores.edits import EDITS
from dpbench_lab.museum.cores.noise import NOISES
from dpbench_lab.museum.cores.published import PUBLISHED
from dpbench_lab.museum.cores.samples import SAMPLES

CORES = (*PUBLISHED, *NOISES, *SAMPLES, *EDITS)
