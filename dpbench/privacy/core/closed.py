"""The closed set: plans, questions and forms are accepted only if `dpbench.privacy` defines them.

Each class in the set states its own cost or norm, and the harness relies on it. A plugin's class, even a subclass of a
closed class, could state anything.
"""

from __future__ import annotations

import sys
from functools import lru_cache

CLOSED_PREFIX = "dpbench.privacy."


@lru_cache(256)
def is_defined_by_dpbench(cls: type) -> bool:
    """Return whether `dpbench.privacy` defines a class: one of its modules has the class under the class's own name."""
    module = sys.modules.get(cls.__module__)
    return cls.__module__.startswith(CLOSED_PREFIX) and getattr(module, cls.__name__, None) is cls
