"""Receipts: files from which `dpbench verify` recomputes the epsilon of a training loop.

============= ====================================================================================
`events`      what was done to the private data, as a tree
`receipt`     the file: `Receipt`, its parts, and `receipt`, which makes one
`accounting`  epsilon of events by two accountants
`check`       every mismatch by name
`noise`       whether a loop adds as much noise as its receipt states
`exporters`   the facts in objects of Opacus, jax_privacy, dp-accounting and OpenDP
`from_result` results of dpbench as receipts
`model_check` whether the card of a model states the guarantee of its receipt
`pytest_plugin` the fixture `dpbench_audit`: fails a test if its loop is less private than its receipt states
============= ====================================================================================

Importing this package imports neither torch nor any library that an exporter reads.
"""

from dpbench.receipts.check import Checked, Mismatch, check
from dpbench.receipts.events import (
    Approximate,
    BestOf,
    Chosen,
    Composed,
    Concentrated,
    Gaussian,
    Laplace,
    NonPrivate,
    Pure,
    Repeated,
    Sampled,
)
from dpbench.receipts.exporters.dp_events import from_dp_event
from dpbench.receipts.exporters.jax_plans import from_jax_privacy
from dpbench.receipts.exporters.opacus_engine import from_opacus
from dpbench.receipts.exporters.opendp_measurements import from_opendp
from dpbench.receipts.from_result import from_result
from dpbench.receipts.receipt import (
    Accountant,
    AuditFigures,
    Batches,
    HashedFile,
    Noise,
    Receipt,
    Search,
    SecondRelease,
    Training,
    receipt,
)
from dpbench.receipts.steps import gaussian_steps

__all__ = [
    "Accountant",
    "Approximate",
    "AuditFigures",
    "Batches",
    "BestOf",
    "Checked",
    "Chosen",
    "Composed",
    "Concentrated",
    "Gaussian",
    "HashedFile",
    "Laplace",
    "Mismatch",
    "Noise",
    "NonPrivate",
    "Pure",
    "Receipt",
    "Repeated",
    "Sampled",
    "Search",
    "SecondRelease",
    "Training",
    "check",
    "from_dp_event",
    "from_jax_privacy",
    "from_opacus",
    "from_opendp",
    "from_result",
    "gaussian_steps",
    "receipt",
]
