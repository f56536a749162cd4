"""The baselines that come with dpbench: like any third-party plugin, they import only its public contract."""
