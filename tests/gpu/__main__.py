"""Run the parts that were asked for and say what they found; see the package."""

from __future__ import annotations

import sys

from tests.gpu.command import main

sys.exit(main(sys.argv[1:]))
