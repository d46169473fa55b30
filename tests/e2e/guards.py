"""What every page is in a real browser: silent, within the policy, accessible, not too wide."""

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page

_AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_GRAVE = ("serious", "critical")
_WATCH_POLICY = """
addEventListener('securitypolicyviolation', (event) => console.error(
  `policy: ${event.violatedDirective} refuses ${event.blockedURI} ${event.sample}`));
"""
_WIDER_THAN_THE_WINDOW = """
() => [...document.querySelectorAll('body *')]
  .filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    && !e.closest('.gpu-map, .table-wrap, pre, .crumbs, [popover]'))
  .slice(0, 5).map((e) => e.outerHTML.slice(0, 120))
"""


class Guard:
    """Watches one page from its first byte; `complaints` is what was wrong so far."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._allowed: list[str] = []
        page.add_init_script(_WATCH_POLICY)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))

    def look(self) -> None:
        """Fail if the page that is open now has grave axe findings or is wider than its window.

        Raises:
            AssertionError: with one line for each finding.
        """
        where = self.page.url
        findings = [f"{where}: {line}" for line in grave_findings(self.page)]
        width, window = self.page.evaluate(
            "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        if width > window:
            parts = self.page.evaluate(_WIDER_THAN_THE_WINDOW)
            findings.append(f"{where} is {width} px wide in a window of {window} px: {parts}")
        assert not findings, "\n".join(findings)

    def allow(self, text: str) -> None:
        """Let complaints that contain a text pass from now on: the test provokes them."""
        self._allowed.append(text)

    def expect_silence(self) -> None:
        """Fail if the console, a script or the policy has complained.

        Raises:
            AssertionError: with the complaints.
        """
        assert not self.complaints, "\n".join(self.complaints)

    def _hear(self, message: ConsoleMessage) -> None:
        if any(text in message.text for text in self._allowed):
            return
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console: {message.text} ({message.location.get('url', '')})")


def grave_findings(page: Page) -> list[str]:
    """Return one line for each serious or critical finding of axe on the page as it is now."""
    page.evaluate(_axe())
    result: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{found['id']} ({found['impact']}): {node['target']} {node['failureSummary']}"
        for found in result["violations"]
        if found["impact"] in _GRAVE
        for node in found["nodes"]
    ]


@cache
def _axe() -> str:
    return _AXE.read_text(encoding="utf-8")
