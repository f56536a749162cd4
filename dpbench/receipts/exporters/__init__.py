"""Read the facts of a training from other libraries' objects. Each library is imported only when it is read.

Exporters never guess: a fact that an object does not hold stays empty or is an argument.
"""
