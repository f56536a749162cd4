"""Tests of dpbench_lab."""
