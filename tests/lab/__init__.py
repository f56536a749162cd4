"""Tests of `dpbench_lab`: the job that takes it away takes these too."""
