"""Read the facts of a training from objects of other libraries. A library is imported only when it is needed.

Exporters never guess. If an object does not hold a fact, the fact stays empty, or you pass it as an argument.
"""
