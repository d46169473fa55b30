"""The portal behind a real socket: pages, headers, the stream, and how it stops."""

import contextlib
import http.client
import time
from urllib.parse import urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from redis import Redis

from portal import live
from tests.serving import served


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)


def read_until(answer: http.client.HTTPResponse, end: bytes) -> bytes:
    seen = b""
    while not seen.endswith(end):
        seen += answer.read(1)
    return seen


def listeners(valkey: str) -> int:
    database = valkey.rpartition("/")[2]
    with Redis.from_url(valkey) as client:
        found = client.client_list(_type="pubsub")
    return len([one for one in found if one["db"] == database])


def test_a_page_streams_events_over_http(portal_url: str, valkey: str) -> None:
    with contextlib.closing(connect(portal_url)) as connection:
        connection.request("GET", f"/live/?t={live.sign_topics(1, ['map'])}")
        with contextlib.closing(connection.getresponse()) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["X-Accel-Buffering"] == "no"
            assert b"event: resync" in read_until(answer, b"data: {}\n\n")
            with Redis.from_url(valkey) as client:
                client.publish(live.channel_of("map"), '{"n":1}')
            assert b"event: map\ndata:" in read_until(answer, b'{"n":1}\n\n')
            assert listeners(valkey) == 1


def test_the_sign_in_page_needs_no_session_and_has_the_strict_policy(portal_url: str) -> None:
    with contextlib.closing(connect(portal_url)) as connection:
        connection.request("GET", "/sign-in/")
        answer = connection.getresponse()
        answer.read()

    policy = answer.headers["Content-Security-Policy"]
    assert answer.status == 200
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_open_streams_do_not_hold_up_the_end(valkey: str) -> None:
    with contextlib.ExitStack() as open_pages:
        with served() as url:
            for _ in range(20):
                connection = open_pages.enter_context(contextlib.closing(connect(url)))
                connection.request("GET", f"/live/?t={live.sign_topics(1, ['map'])}")
                answer = open_pages.enter_context(contextlib.closing(connection.getresponse()))
                read_until(answer, b"listening\n\n")
            started = time.monotonic()
        assert time.monotonic() - started < 5
    assert listeners(valkey) == 0


@pytest.mark.django_db
def test_signing_in_and_out_with_a_local_account(client: Client) -> None:
    get_user_model().objects.create_user("bob", password="correct horse")

    refused = client.post("/sign-in/", {"username": "bob", "password": "wrong"})
    accepted = client.post(
        "/sign-in/", {"username": "bob", "password": "correct horse"}, query_params={"next": "/x"}
    )
    left = client.post("/sign-out/")

    assert refused.status_code == 200
    assert refused.context["form"].errors
    assert (accepted.status_code, accepted.headers["Location"]) == (302, "/x")
    assert (left.status_code, left.headers["Location"]) == (302, "/sign-in/")
    assert client.get("/sign-out/").status_code == 302


@pytest.mark.django_db
@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "javascript:x"])
def test_signing_in_never_leads_elsewhere(client: Client, target: str) -> None:
    get_user_model().objects.create_user("bob", password="correct horse")

    answer = client.post(
        "/sign-in/",
        {"username": "bob", "password": "correct horse"},
        query_params={"next": target},
    )

    assert answer.headers["Location"] == "/"


def test_the_language_is_chosen_before_signing_in(client: Client) -> None:
    answer = client.post("/language/", {"language": "zh-hans", "next": "/sign-in/"})

    assert answer.status_code == 302
    assert answer.cookies["slicedesk_language"].value == "zh-hans"
