"""A page that takes long: waited for, unless the database is why."""

import asyncio

import pytest

from portal import patience
from portal.patience import Message, with_patience


async def nothing() -> Message:
    await asyncio.sleep(60)
    return {}


def answer_of(seconds: float) -> list[Message]:
    """Return what is sent for a page that takes so long."""
    sent: list[Message] = []

    async def page(_scope: Message, _receive: object, send: patience.Send) -> None:
        await asyncio.sleep(seconds)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(seconds)
        await send({"type": "http.response.body", "body": b"done"})

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(with_patience(page, {"path": "/"}, nothing, send))
    return sent


@pytest.mark.parametrize(("answers", "status"), [(True, 200), (False, 503)])
def test_a_slow_page_is_waited_for_unless_the_database_is_why(
    monkeypatch: pytest.MonkeyPatch, *, answers: bool, status: int
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(patience, "database_answers", lambda: answers)

    sent = answer_of(0.2)

    assert [message["type"] for message in sent] == [
        "http.response.start",
        "http.response.body",
    ]
    assert sent[0]["status"] == status


def test_an_error_of_a_page_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def page(*_arguments: object) -> None:
        raise LookupError

    async def story() -> None:
        await with_patience(page, {"path": "/"}, nothing, lambda _message: asyncio.sleep(0))

    with pytest.raises(LookupError):
        asyncio.run(story())
