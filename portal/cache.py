"""A cache that may be away: a miss is the worst that can happen."""

from collections.abc import Callable
from typing import Any, override

import structlog
from django.core.cache.backends.redis import RedisCache
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)


class CalmRedisCache(RedisCache):
    """Redis as a cache whose outage looks like an empty cache instead of an error."""

    def _calmly[T](self, call: Callable[[], T], *, otherwise: T) -> T:
        try:
            return call()
        except (RedisError, OSError) as error:
            log.warning("cache.unavailable", error=type(error).__name__)
            return otherwise

    @override
    def add(self, *args: Any, **kwargs: Any) -> bool:
        return self._calmly(
            lambda: bool(super(CalmRedisCache, self).add(*args, **kwargs)), otherwise=False
        )

    @override
    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._calmly(
            lambda: super(CalmRedisCache, self).get(key, default, version), otherwise=default
        )

    @override
    def set(self, *args: Any, **kwargs: Any) -> None:
        self._calmly(lambda: super(CalmRedisCache, self).set(*args, **kwargs), otherwise=None)

    @override
    def touch(self, *args: Any, **kwargs: Any) -> bool:
        return self._calmly(
            lambda: bool(super(CalmRedisCache, self).touch(*args, **kwargs)), otherwise=False
        )

    @override
    def delete(self, *args: Any, **kwargs: Any) -> bool:
        return self._calmly(
            lambda: bool(super(CalmRedisCache, self).delete(*args, **kwargs)), otherwise=False
        )

    @override
    def get_many(self, keys: Any, version: int | None = None) -> dict[Any, Any]:
        return self._calmly(
            lambda: dict(super(CalmRedisCache, self).get_many(keys, version)), otherwise={}
        )

    @override
    def set_many(self, data: dict[Any, Any], *args: Any, **kwargs: Any) -> list[Any]:
        return self._calmly(
            lambda: list(super(CalmRedisCache, self).set_many(data, *args, **kwargs)),
            otherwise=list(data),
        )

    @override
    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self._calmly(
            lambda: bool(super(CalmRedisCache, self).has_key(key, version)), otherwise=False
        )
