"""The registry of installed plugins: entry points, hooks, and the components that a spec names."""

from dpbench.registry.entry_points import (
    KINDS,
    UNPACKAGED,
    BrokenPlugin,
    ComponentKind,
    Registration,
    Registry,
    convert_fields,
    load,
)

__all__ = ["KINDS", "UNPACKAGED", "BrokenPlugin", "ComponentKind", "Registration", "Registry", "convert_fields", "load"]
