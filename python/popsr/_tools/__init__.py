"""Tools on top of programs and sessions: reports, records, traces, pictures and help pages."""
