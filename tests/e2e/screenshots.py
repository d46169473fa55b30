"""Pictures of every page at two widths, in both themes and languages: `make screenshots`.

It starts a demo of its own in a temporary folder, asks for a few slices so that lists are not
empty, and writes `screenshots/<page>-<width>-<theme>-<language>.png`. What the console or axe
complain about is printed, and the exit status is 1 then.
"""

import argparse
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import override

from playwright.sync_api import Browser, Page, sync_playwright

from portal.embedded.state import free_port
from tests.e2e.conftest import CHROMIUM, FLAGS
from tests.e2e.guards import Guard

ROOT = Path(__file__).parents[2]
WIDTHS = (1440, 390)
THEMES = ("light", "dark")
LANGUAGES = ("en", "zh-hans")
_PASSWORD = "slicedesk-demo"  # noqa: S105  # the demo prints it
_SERVED = "The portal is served at "


@dataclass(frozen=True, slots=True)
class Shot:
    """One page: who looks at it, where it is, and which link on it leads to the page meant."""

    name: str
    person: str
    path: str
    follow: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which every page is shown."""

    width: int
    theme: str
    language: str

    @override
    def __str__(self) -> str:
        return f"{self.width}-{self.theme}-{self.language}"


SHOTS = (
    Shot("sign-in", "", "/sign-in/"),
    Shot("home-researcher", "ada", "/"),
    Shot("home-lead", "lei", "/"),
    Shot("offerings", "ada", "/offerings/"),
    Shot("request-new", "ada", "/requests/new/"),
    Shot("requests", "ada", "/requests/"),
    Shot("request-ready", "ada", "/requests/?state=ready", "main td a"),
    Shot("request-waiting", "ada", "/requests/?state=waiting_for_approval", "main td a"),
    Shot("inbox", "grace", "/inbox/"),
    Shot("gpu-map", "grace", "/gpus/"),
    Shot("gpu-map-table", "grace", "/gpus/?view=table"),
    Shot("gpu", "grace", "/gpus/", ".gpu-map a.glyph"),
    Shot("layout-editor", "grace", "/gpus/", ".gpu-map a.glyph"),
    Shot("nodes", "grace", "/nodes/"),
    Shot("node", "grace", "/nodes/", "main td a"),
    Shot("sharing", "grace", "/nodes/", "main td a"),
    Shot("gpu-service", "grace", "/gpus/", ".gpu-map a.glyph"),
    Shot("freezes", "grace", "/freezes/"),
    Shot("operations", "grace", "/operations/"),
    Shot("operation", "grace", "/operations/", "main td a"),
    Shot("audit", "grace", "/audit/"),
    Shot("overview", "marta", "/overview/"),
    Shot("not-found", "ada", "/nowhere/"),
    Shot("not-for-your-role", "ada", "/overview/"),
)
_LAST_STEPS = {"layout-editor": "layout/", "sharing": "sharing/", "gpu-service": "service/"}
_WISHES = (
    ("12", "Fine-tuning of a protein folding model on the March data of three institutes"),
    ("38", "Evaluation of checkpoints"),
)


def main(arguments: list[str]) -> int:
    """Take the pictures; return 1 if any page complained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--only", default="", help="names of pages, with commas between")
    parser.add_argument("--url", default="", help="a demo that is served already")
    options = parser.parse_args(arguments)
    names = set(options.only.split(",")) if options.only else {shot.name for shot in SHOTS}
    shots = [shot for shot in SHOTS if shot.name in names]
    options.out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(served_demo())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        stack.callback(browser.close)
        complaints = _Camera(browser, url, options.out).take(shots)
    for line in complaints:
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"Pictures of {len(shots)} pages are in {options.out}.\n")
    return 1 if complaints else 0


@contextlib.contextmanager
def served_demo() -> Iterator[str]:
    """Run a demo from an empty folder, tour included, and yield its address.

    Raises:
        RuntimeError: it ended before it served anything.
    """
    with tempfile.TemporaryDirectory(prefix="screenshots-") as folder:
        services = {"DATABASE_URL", "REDIS_URL", "DEPLOYMENT", "CLUSTER", "SIMULATED_PACE"}
        kept = {name: value for name, value in os.environ.items() if name not in services}
        with subprocess.Popen(
            [sys.executable, "manage.py", "demo"],
            cwd=ROOT,
            env={**kept, "SLICEDESK_STATE_DIR": folder, "PORT": str(free_port())},
            stdout=subprocess.PIPE,
            text=True,
        ) as demo:
            try:
                yield _address(demo)
            finally:
                demo.send_signal(signal.SIGINT)
                demo.communicate(timeout=60)


def _address(demo: subprocess.Popen[str]) -> str:
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith(_SERVED):
            return line.removeprefix(_SERVED).split()[0]
    message = "The demo ended before it served a page; make demo says why."
    raise RuntimeError(message)


class _Camera:
    """Goes from page to page as each person, in each variant."""

    def __init__(self, browser: Browser, url: str, out: Path) -> None:
        self._browser, self._url, self._out = browser, url, out
        self._complaints: list[str] = []

    def take(self, shots: list[Shot]) -> list[str]:
        """Take all pictures and return what pages complained about."""
        with self._visit(Variant(WIDTHS[0], "light", "en"), "ada") as page:
            for memory, purpose in _WISHES:
                self._ask(page, memory, purpose)
        for width, theme, language in itertools.product(WIDTHS, THEMES, LANGUAGES):
            variant = Variant(width, theme, language)
            for person, group in itertools.groupby(shots, key=lambda shot: shot.person):
                with self._visit(variant, person) as page:
                    for shot in group:
                        self._picture(page, shot, variant)
        return self._complaints

    @contextlib.contextmanager
    def _visit(self, variant: Variant, person: str) -> Iterator[Page]:
        context = self._browser.new_context(
            viewport={"width": variant.width, "height": 900},
            color_scheme="dark" if variant.theme == "dark" else "light",
            locale="en-GB" if variant.language == "en" else "zh-CN",
            reduced_motion="reduce",
        )
        with context:
            page = context.new_page()
            if person:
                self._sign_in(page, person)
            yield page

    def _sign_in(self, page: Page, person: str) -> None:
        page.goto(f"{self._url}/sign-in/")
        page.locator("[name=username]").fill(person)
        page.locator("[name=password]").fill(_PASSWORD)
        page.locator("main button[type=submit]").click()
        page.wait_for_url(lambda url: "/sign-in/" not in url)

    def _ask(self, page: Page, memory: str, purpose: str) -> None:
        page.goto(f"{self._url}/requests/new/")
        page.locator("[name=isolation][value=isolated]").check()
        page.locator("[name=memory]").fill(memory)
        page.locator("[name=count]").fill("1")
        page.locator("[name=days]").fill("3")
        page.locator("[name=purpose]").fill(purpose)
        page.locator("main .button-primary").click()
        page.wait_for_url(re.compile(r"/requests/\d+/$"))

    def _picture(self, page: Page, shot: Shot, variant: Variant) -> None:
        guard = Guard(page)
        page.goto(self._url + shot.path)
        if shot.follow:
            link = page.locator(shot.follow).first
            if not link.count():
                self._complaints.append(f"{shot.name}: {shot.path} has no link {shot.follow}")
                return
            page.goto(self._url + (link.get_attribute("href") or ""))
        if last := _LAST_STEPS.get(shot.name):
            page.goto(page.url + last)
        page.evaluate("document.fonts.ready.then(() => true)")
        page.screenshot(path=self._out / f"{shot.name}-{variant}.png", full_page=True)
        try:
            guard.look()
        except AssertionError as finding:
            self._complaints.append(f"{shot.name} {variant}: {finding}")
        expected = shot.name in {"not-found", "not-for-your-role"}
        self._complaints += [
            f"{shot.name} {variant}: {text}"
            for text in guard.complaints
            if not (expected and "status of 40" in text)
        ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
