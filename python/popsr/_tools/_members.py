"""Members of classes of the core that this room has, see ``popsr._support.extensions``."""

__all__ = ["MEMBERS"]

MEMBERS = {
    "Graph._repr_html_": "show.graph_html:graph_repr_html",
    "Graph.html": "show.graph_html:graph_html",
    "Ir.dot_checkpoint": "show.dot:dot_checkpoint",
    "Proof.report": "report.proof:proof_report",
    "Session.report": "report.page:session_report",
    "Session.trace": "trace.tracing:session_trace",
    "Session.write_dot_checks": "show.dot:write_dot_checks",
    "__treescope_repr__": "show.summaries:treescope_of",
    "_repr_html_": "show.summaries:html_of",
}
