"""What other libraries know of a training, read from their own objects. Each library is imported only when it is read.

Exporters read and never guess: what an object does not tell stays empty, or is asked for as an argument.
"""
