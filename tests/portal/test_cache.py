"""The cache on a real Valkey, and without one."""

import pytest
from django.core.cache import caches
from pytest_django import Settings

from portal.cache import CalmRedisCache


def calm(url: str) -> CalmRedisCache:
    return CalmRedisCache(url, {"OPTIONS": {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}})


def test_it_is_a_cache_while_valkey_answers(valkey: str) -> None:
    cache = calm(valkey)

    cache.set("a", {"n": 1})
    assert cache.get("a") == {"n": 1}
    assert cache.add("a", 2) is False
    assert cache.touch("a") is True
    assert cache.set_many({"b": 2, "c": 3}) == []
    assert cache.get_many(["a", "b", "x"]) == {"a": {"n": 1}, "b": 2}
    assert "b" in cache
    assert cache.delete("b") is True
    assert "b" not in cache


def test_it_is_empty_while_valkey_does_not_answer() -> None:
    cache = calm("redis://127.0.0.1:1/0")

    cache.set("a", 1)
    assert cache.get("a", "fallback") == "fallback"
    assert cache.add("a", 1) is False
    assert cache.touch("a") is False
    assert cache.delete("a") is False
    assert cache.get_many(["a"]) == {}
    assert cache.set_many({"a": 1}) == ["a"]
    assert "a" not in cache


@pytest.mark.parametrize("alias", ["default"])
def test_the_portal_uses_it(alias: str, settings: Settings) -> None:
    settings.CACHES = {alias: {"BACKEND": "portal.cache.CalmRedisCache", "LOCATION": "redis://x"}}

    assert isinstance(caches[alias], CalmRedisCache)
