"""A run on a time axis, as a trace for a viewer or as a picture of one round."""

from edgefl.report.timeline.gantt import gantt_figure, write_gantt
from edgefl.report.timeline.trace import trace_of, write_trace

__all__ = ["gantt_figure", "trace_of", "write_gantt", "write_trace"]
