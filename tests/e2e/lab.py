"""The whole portal for the journeys: every process of the demo on a simulated lab, and people."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import override

from playwright.sync_api import Page

from portal.embedded.state import free_port

PASSWORD = "slicedesk-demo"  # noqa: S105  # the demo prints it
_ROOT = Path(__file__).parents[2]
_SERVED = "The portal is served at "
_OURS = {  # what the test run has set for its own process
    "CLUSTER",
    "DATABASE_URL",
    "DEPLOYMENT",
    "DJANGO_SETTINGS_MODULE",
    "LOG_LEVEL",
    "REDIS_URL",
    "SECRET_KEY",
    "SIMULATED_PACE",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One way in which a page is shown."""

    width: int
    theme: str
    language: str

    @override
    def __str__(self) -> str:
        return f"{self.width}-{self.theme}-{self.language}"

    def apply(self, page: Page, url: str) -> None:
        """Show pages of the address so from now on."""
        page.set_viewport_size({"width": self.width, "height": 900})
        cookies = {"slicedesk_theme": self.theme, "slicedesk_language": self.language}
        page.context.add_cookies(
            [{"name": name, "value": value, "url": url} for name, value in cookies.items()]
        )


LOOKS = tuple(
    Look(*parts) for parts in itertools.product((1440, 390), ("light", "dark"), ("en", "zh-hans"))
)


@contextlib.contextmanager
def served_lab(*, pace: float = 0.2) -> Iterator[str]:
    """Run the demo with all its processes from an empty folder and yield its address.

    `pace` scales the lab's delays. Raises `RuntimeError` when it ends before it serves anything.
    """
    with tempfile.TemporaryDirectory(prefix="lab-") as folder, served_from(folder, pace) as url:
        yield url


@contextlib.contextmanager
def served_from(
    folder: str, pace: float, *words: str, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run the demo from a folder that stays: who has it can stop the servers under the portal.

    `words` go to the command, `environment` on top of that of the test run.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    with subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--no-tour", *words],
        cwd=_ROOT,
        env={
            **kept,
            "SLICEDESK_STATE_DIR": folder,
            "PORT": str(free_port()),
            "SIMULATED_PACE": str(pace),
            **(environment or {}),
        },
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as lab:
        try:
            yield _address(lab)
        finally:
            lab.send_signal(signal.SIGINT)
            lab.communicate(timeout=60)


def sign_in(page: Page, url: str, person: str) -> None:
    """Sign a person of the demo in, from the page that asks for it."""
    page.goto(f"{url}/sign-in/")
    page.get_by_label(re.compile("User", re.IGNORECASE)).fill(person)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda address: "/sign-in/" not in address)


def _address(lab: subprocess.Popen[str]) -> str:
    assert lab.stdout is not None
    said = []
    for line in lab.stdout:
        said.append(line)
        if line.startswith(_SERVED):
            return line.removeprefix(_SERVED).split()[0]
    message = "The demo ended before it served a page:\n" + "".join(said)
    raise RuntimeError(message)
