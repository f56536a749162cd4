"""All known broken cores, once each: the museum exhibits them, audits reject them, and mutation tests run them."""

from __future__ import annotations

from dpbench_lab.museum.cores.edits import EDITS
from dpbench_lab.museum.cores.noise import NOISES
from dpbench_lab.museum.cores.published import PUBLISHED
from dpbench_lab.museum.cores.samples import SAMPLES

CORES = (*PUBLISHED, *NOISES, *SAMPLES, *EDITS)
