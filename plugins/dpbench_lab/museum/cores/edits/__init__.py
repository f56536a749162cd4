"""Broken cores made by editing a few words of one file. The tests of `dpbench` must notice each of them."""

from __future__ import annotations

from dpbench_lab.museum.cores.edits import accounting, core, exact, harness, mechanisms, purity

EDITS = (*core.EDITS, *exact.EDITS, *purity.EDITS, *accounting.EDITS, *mechanisms.EDITS, *harness.EDITS)
