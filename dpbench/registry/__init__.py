"""What is installed: plugins by their entry points, the hooks they implement, and the components a spec names."""

from dpbench.registry.entry_points import (
    KINDS,
    OWN,
    BrokenPlugin,
    Kind,
    Registration,
    Registry,
    fields_from,
    load,
)

__all__ = ["KINDS", "OWN", "BrokenPlugin", "Kind", "Registration", "Registry", "fields_from", "load"]
