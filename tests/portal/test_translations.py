"""Both languages are complete, and a page comes in the visitor's."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

ROOT = Path(__file__).parents[2]


def test_every_text_has_its_translation() -> None:
    """`scripts/collect_messages.py` lists what is missing; translate it and compile anew."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "collect_messages.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("header", "cookie", "words"),
    [
        ("zh-CN,zh;q=0.9", "", "登录"),
        ("en-GB", "", "Sign in"),
        ("en-GB", "zh-hans", "登录"),
        ("fr", "", "Sign in"),
    ],
    ids=["the browser's Chinese", "the browser's English", "chosen", "neither"],
)
@pytest.mark.django_db
def test_a_page_comes_in_the_visitor_s_language(
    client: Client, header: str, cookie: str, words: str
) -> None:
    if cookie:
        client.cookies["slicedesk_language"] = cookie
    page = client.get("/sign-in/", headers={"accept-language": header}).content.decode()
    assert f"<h1>{words}</h1>" in page


@pytest.mark.django_db
def test_the_language_is_chosen_by_a_form(client: Client) -> None:
    answer = client.post("/language/", {"language": "zh-hans", "next": "/sign-in/"})
    assert answer["Location"] == "/sign-in/"
    assert "登录" in client.get("/sign-in/").content.decode()
