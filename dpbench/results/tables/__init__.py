"""Results that need no board, as tables: one for each protocol, learners by ε, best first, ties bold.

`collect` reads files, `arrange` makes the tables, `render` prints them.
"""

from dpbench.results.tables.arrange import Table, arrange
from dpbench.results.tables.collect import Filed, read

__all__ = ["Filed", "Table", "arrange", "read"]
