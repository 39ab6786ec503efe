"""Tracing: a Python function on NumPy arrays becomes a Graph."""

from hjit.trace.graph import Definition, Graph, Input, Scalar, Stage
from hjit.trace.interpret import interpret
from hjit.trace.trace import Result, Trace, Tree, trace

__all__ = ["Definition", "Graph", "Input", "Result", "Scalar", "Stage", "Trace", "Tree", "interpret", "trace"]
