"""A pytest plugin: under CI a skipped test fails the run."""

from __future__ import annotations

import os

import pytest

skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember skipped tests (an expected failure counts as run)."""
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped under CI."""
    if skipped and os.environ.get("CI") == "true":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report why a run without failures failed."""
    if skipped and os.environ.get("CI") == "true":
        terminalreporter.write_line(f"CI=true: skipped is failed: {', '.join(skipped)}", red=True)
