"""One small program per peer, each started in an interpreter of its own.

`protocol` is what the programs share. It needs nothing but the standard library, because the
interpreters have nothing else in common.
"""
