"""Tests of dpbench_plugins."""
