"""Server-side apply in small: who owns which field, and what an apply may change."""

from collections.abc import Iterator
from typing import Any

from gpu.ports import ConflictError, Manifest

type Path = tuple[str, ...]

_IDENTITY = frozenset({("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")})


def merged(existing: Manifest, wanted: Manifest, owners: dict[str, str], manager: str) -> Manifest:
    """Return the object after an apply and update `owners`; `ConflictError` for a foreign field.

    `owners` maps a field's path, joined by blanks, to its manager. Lists are one field each.
    """
    result: Manifest = _copy(existing)
    wanted_leaves = dict(leaves(wanted))
    for path, value in wanted_leaves.items():
        owner = owners.get(_key(path), manager)
        if owner != manager and _get(existing, path) != value:
            msg = f"field {'.'.join(path)} is owned by {owner} and differs"
            raise ConflictError(msg)
    for key, owner in list(owners.items()):
        path = tuple(key.split(" "))
        if owner == manager and path not in wanted_leaves:
            _unset(result, path)
            del owners[key]
    for path, value in wanted_leaves.items():
        _set(result, path, value)
        owners.setdefault(_key(path), manager)
    return result


def patched(existing: Manifest, patch: Manifest) -> Manifest:
    """Return the object after a JSON merge patch."""
    result: Manifest = _copy(existing)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            old = result.get(key)
            result[key] = patched(old if isinstance(old, dict) else {}, value)
        else:
            result[key] = value
    return result


def leaves(body: Manifest, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the fields of an object that say something, without its identity."""
    for key, value in body.items():
        path = (*prefix, key)
        if path in _IDENTITY:
            continue
        if isinstance(value, dict) and value:
            yield from leaves(value, path)
        else:
            yield path, value


def _key(path: Path) -> str:
    return " ".join(path)


def _copy(value: Any) -> Any:  # noqa: ANN401  # JSON values
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _get(body: Manifest, path: Path) -> Any:  # noqa: ANN401  # JSON values
    found: Any = body
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _set(body: Manifest, path: Path, value: Any) -> None:  # noqa: ANN401  # JSON values
    for part in path[:-1]:
        body = body.setdefault(part, {})
    body[path[-1]] = value


def _unset(body: Manifest, path: Path) -> None:
    for part in path[:-1]:
        body = body.get(part) or {}
    body.pop(path[-1], None)
