"""The simulated API server's memory: objects and their changes in one sqlite file.

Several processes share it. Writes happen in short immediate transactions; nothing slow is done
inside one. What the simulation itself has to remember of an object is kept in its `simulated`
field, which never leaves this package.
"""

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.ports import Kind, Manifest, kind_of

HIDDEN = "simulated"
NEVER = 1e18
"""A moment, in seconds since the epoch, that does not come."""
_KEPT_CHANGES = 5000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    kind TEXT, namespace TEXT, name TEXT, body TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (
    version INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, type TEXT, body TEXT, before TEXT
);
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS logs (uid TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the change log; `before` is None for an object that is new."""

    version: int
    type: str
    body: Manifest
    before: Manifest | None


def public(body: Manifest) -> Manifest:
    """Return an object as clients see it."""
    return {key: value for key, value in body.items() if key != HIDDEN}


def hidden(body: Manifest) -> dict[str, Any]:
    """Return what the simulation remembers of an object, to read and to change."""
    remembered: dict[str, Any] = body.setdefault(HIDDEN, {})
    return remembered


class Transaction:
    """Reads and writes that happen together or not at all."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.writes = 0
        """How many objects this transaction has changed so far, hidden parts included."""

    def get(self, kind: Kind, name: str, namespace: str = "") -> Manifest | None:
        """Return one object with its hidden part, or None."""
        row = self._connection.execute(
            "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
            (kind.plural, namespace, name),
        ).fetchone()
        return json.loads(row[0]) if row else None

    def select(self, kind: Kind, namespace: str = "") -> list[Manifest]:
        """Return all objects of a kind, by namespace and name."""
        query = "SELECT body FROM objects WHERE kind = ?"
        arguments: tuple[str, ...] = (kind.plural,)
        if namespace:
            query += " AND namespace = ?"
            arguments = (kind.plural, namespace)
        rows = self._connection.execute(f"{query} ORDER BY namespace, name", arguments)
        return [json.loads(row[0]) for row in rows]

    def put(self, body: Manifest) -> Manifest:
        """Write an object; a new resource version only if what clients see has changed."""
        kind = kind_of(body)
        meta = body["metadata"]
        before = self.get(kind, meta["name"], meta.get("namespace", ""))
        meta.setdefault("uid", str(uuid.uuid4()))
        if before is not None:
            meta["resourceVersion"] = before["metadata"]["resourceVersion"]
            if public(before) == public(body):
                if before != body:
                    self._store(kind, body)
                return body
        self._log(kind, "ADDED" if before is None else "MODIFIED", body, before)
        self._store(kind, body)
        return body

    def remove(self, body: Manifest) -> None:
        """Delete an object for good."""
        kind = kind_of(body)
        meta = body["metadata"]
        before = self.get(kind, meta["name"], meta.get("namespace", ""))
        if before is None:
            return
        self._log(kind, "DELETED", body, before)
        self.writes += 1
        self._connection.execute(
            "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?",
            (kind.plural, meta.get("namespace", ""), meta["name"]),
        )

    def changes_since(self, kind: Kind, version: int) -> list[Change]:
        """Return what has happened to a kind after a version, oldest first."""
        rows = self._connection.execute(
            "SELECT version, type, body, before FROM changes WHERE kind = ? AND version > ?"
            " ORDER BY version",
            (kind.plural, version),
        )
        return [
            Change(row[0], row[1], json.loads(row[2]), json.loads(row[3]) if row[3] else None)
            for row in rows
        ]

    def versions(self) -> tuple[int, int]:
        """Return the oldest version that a watch may start from, and the newest."""
        oldest, newest = self._connection.execute(
            "SELECT COALESCE(MIN(version), 0), COALESCE(MAX(version), 0) FROM changes"
        ).fetchone()
        return max(0, oldest - 1), newest

    def forget_changes(self) -> None:
        """Drop the change log but for its last line, as a compaction does."""
        self._connection.execute(
            "DELETE FROM changes WHERE version < (SELECT MAX(version) FROM changes)"
        )

    def fact(self, key: str) -> Any:  # noqa: ANN401  # JSON values
        """Return a fact of the whole lab, or None."""
        row = self._connection.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def set_fact(self, key: str, value: object) -> None:
        """Keep a fact of the whole lab."""
        self._connection.execute(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, json.dumps(value))
        )

    def log_of(self, uid: str) -> str:
        """Return what a Pod has printed."""
        row = self._connection.execute("SELECT text FROM logs WHERE uid = ?", (uid,)).fetchone()
        return str(row[0]) if row else ""

    def set_log(self, uid: str, text: str) -> None:
        """Keep what a Pod has printed."""
        self._connection.execute("INSERT OR REPLACE INTO logs VALUES (?, ?)", (uid, text))

    def forget_log(self, uid: str) -> None:
        """Drop what a Pod that has gone had printed."""
        self._connection.execute("DELETE FROM logs WHERE uid = ?", (uid,))

    def due(self) -> float:
        """Return when something happens by itself again; 0 is now, whenever that is."""
        return float(self.fact("due") or 0)

    def wake(self, at: float) -> None:
        """Let everything be looked at anew, as it is at that moment."""
        self.set_fact("due", min(at, self.due()))

    def _log(self, kind: Kind, change: str, body: Manifest, before: Manifest | None) -> None:
        cursor = self._connection.execute(
            "INSERT INTO changes (kind, type, before) VALUES (?, ?, ?)",
            (kind.plural, change, json.dumps(public(before)) if before else None),
        )
        version = cursor.lastrowid or 0
        body["metadata"]["resourceVersion"] = str(version)
        self._connection.execute(
            "UPDATE changes SET body = ? WHERE version = ?", (json.dumps(public(body)), version)
        )
        self._connection.execute(
            "DELETE FROM changes WHERE version <= ?", (version - _KEPT_CHANGES,)
        )

    def _store(self, kind: Kind, body: Manifest) -> None:
        meta = body["metadata"]
        self.writes += 1
        self._connection.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?) ON CONFLICT (kind, namespace, name)"
            " DO UPDATE SET body = excluded.body",
            (kind.plural, meta.get("namespace", ""), meta["name"], json.dumps(body)),
        )


class Store:
    """The file; each transaction opens it anew, so that nothing has to be closed at the end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        with closing(self._open()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write in one immediate transaction; an exception undoes it."""
        with closing(self._open()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield Transaction(connection)
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one consistent picture."""
        with closing(self._open()) as connection:
            connection.execute("BEGIN")
            yield Transaction(connection)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA synchronous = OFF")
        return connection
