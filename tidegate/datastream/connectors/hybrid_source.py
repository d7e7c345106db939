"""Consecutive sources: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write your own Source, or unite two streams."

HybridSource = java_only("HybridSource", _ADVICE)
HybridSourceBuilder = java_only("HybridSourceBuilder", _ADVICE)

__all__ = ["HybridSource", "HybridSourceBuilder"]
