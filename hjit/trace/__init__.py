"""Tracing: a Python function on NumPy arrays becomes a Graph."""

from hjit.trace.capture.trace import Result, Trace, Tree, trace
from hjit.trace.ir.graph import Definition, Graph, Input, Scalar, Stage
from hjit.trace.ir.interpret import interpret

__all__ = ["Definition", "Graph", "Input", "Result", "Scalar", "Stage", "Trace", "Tree", "interpret", "trace"]
