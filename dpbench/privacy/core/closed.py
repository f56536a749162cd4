"""The closed set: plans, questions and forms count only if `dpbench.privacy` defines them.

Each class in the set states its cost or its norm, and the harness believes it. A plugin's own class, even a subclass
of a closed class, could state anything.
"""

from __future__ import annotations

import sys
from functools import lru_cache

CLOSED_PREFIX = "dpbench.privacy."


@lru_cache(256)
def is_closed(cls: type) -> bool:
    """Return whether a module of `dpbench.privacy` holds this very class under the class's own name."""
    module = sys.modules.get(cls.__module__)
    return cls.__module__.startswith(CLOSED_PREFIX) and getattr(module, cls.__name__, None) is cls
