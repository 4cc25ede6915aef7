"""Files of ``--popsr-report``: of each proof a page and JSON, and an index."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NAME", "Reports", "report"]

NAME = "pytest_popsr_reports"
_PROPERTY = "popsr_report"


def report(item: pytest.Item, proof: Any, error: BaseException | None, codes: Collection[str] = ()) -> None:
    """Write the files of a proof, where they are asked for.

    Args:
        item: the test.
        proof: of the step; None if there is none.
        error: why it is not ok.
        codes: of lints that are accepted.
    """
    reports: Reports | None = item.config.pluginmanager.get_plugin(NAME)
    if reports is not None:
        reports.write(item, proof, error, codes)


class Reports:
    """Writes files of proofs, in each process of pytest-xdist, and the index, in the one that started them.

    The index is of this run: a file that another run left is not in it.
    """

    def __init__(self, config: pytest.Config, folder: Path) -> None:
        """Files in a folder, which is made where there is none."""
        self._config, self._folder = config, folder
        self._entries: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def write(
        self, item: pytest.Item, proof: Any, error: BaseException | None, codes: Collection[str]
    ) -> None:
        """Write the page and the JSON of a proof, and tell the index."""
        from popsr._support.text.answers import Answer, document, error_of

        number = sum(name == _PROPERTY for name, _ in item.user_properties) + 1
        step = item.nodeid if number == 1 else f"{item.nodeid} ({number})"
        file = _file_name(step)
        if proof is None:
            assert error is not None
            errors = [error_of(error, lambda kind: f"{item.nodeid} raised {kind}, expected a proof")]
            found, verdict, summary = Answer(2, str, dict, tuple, errors), "not read", errors[0].text
        else:
            record, findings = proof.as_dict, lambda: proof._findings(codes)
            found = Answer(0 if error is None else 1, str, record, findings)
            verdict, summary = proof.verdict, repr(proof)
            proof.save_html(self._folder / f"{file}.html")
        text = json.dumps(document("prove", found) | {"step": step}, indent=2, allow_nan=False)
        (self._folder / f"{file}.json").write_text(text + "\n")
        entry = {
            "step": step,
            "status": found.status,
            "verdict": verdict,
            "summary": summary,
            "json": f"{file}.json",
            "html": None if proof is None else f"{file}.html",
        }
        item.user_properties.append((_PROPERTY, json.dumps(entry)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the entries of a test that has ended, wherever it ran."""
        if report.when == "teardown":
            found = (text for name, text in report.user_properties if name == _PROPERTY)
            self._entries += (json.loads(str(text)) for text in found)

    def pytest_sessionfinish(self) -> None:
        """Write the index."""
        if hasattr(self._config, "workerinput"):
            return
        from popsr.bridge._proof.proof_page import Link, Section, page_of

        entries = sorted(self._entries, key=lambda each: str(each["step"]))
        (self._folder / "index.json").write_text(
            json.dumps({"format": 1, "proofs": entries}, indent=2) + "\n"
        )
        rows = (
            (
                Link(each["step"], each["html"] or each["json"]),
                Link("JSON", each["json"]),
                each["summary"],
                each["verdict"],
            )
            for each in entries
        )
        wrong = sum(each["status"] != 0 for each in entries)
        title = f"{len(entries)} proofs, {wrong} not accepted"
        page = page_of(title, [Section("Proofs", ("step", "findings", "summary", "verdict"), rows)])
        (self._folder / "index.html").write_text(page)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the index is."""
        terminalreporter.write_line(f"popsr: {len(self._entries)} proofs in {self._folder / 'index.html'}")


def _file_name(step: str) -> str:
    """A name for files of a step, which no other step has."""
    readable = re.sub(r"[^\w.\[\]-]+", "_", step)[-80:].strip("._")
    return f"{readable}-{hashlib.sha256(step.encode()).hexdigest()[:8]}"
