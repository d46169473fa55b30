"""The least API client that set-up and checks need, apart from the one under test."""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class Api:
    """Speaks to one API server as cluster admin."""

    server: str
    token: str
    certificate: Path

    def get(self, path: str) -> Any:  # noqa: ANN401  # JSON edge
        """Return the decoded answer of a GET."""
        return self._call("GET", path, None, "application/json")

    def text(self, path: str) -> str:
        """Return the answer of a GET that is not JSON, such as a log."""
        return self._open("GET", path, None, "application/json").decode(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
        """Create an object."""
        return self._call("POST", path, body, "application/json")

    def merge(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
        """Merge-patch an object; `/status` at the end of the path patches its status."""
        return self._call("PATCH", path, body, _MERGE)

    def apply(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401
        """Server-side apply an object, taking over every field."""
        return self._call("PATCH", f"{path}?fieldManager=lab&force=true", body, _APPLY)

    def delete(self, path: str, *, grace_s: int = 0) -> None:
        """Delete an object, at once if not told otherwise; one that is not there is fine."""
        try:
            self._call("DELETE", path, {"gracePeriodSeconds": grace_s}, "application/json")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def is_ready(self) -> bool:
        """Say whether the API server answers /readyz."""
        try:
            self._open("GET", "/readyz", None, "text/plain")
        except (OSError, ssl.SSLError):
            return False
        return True

    def _call(self, method: str, path: str, body: dict[str, Any] | None, kind: str) -> Any:  # noqa: ANN401
        return json.loads(self._open(method, path, body, kind))

    def _open(self, method: str, path: str, body: dict[str, Any] | None, kind: str) -> bytes:
        request = urllib.request.Request(  # noqa: S310
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.certificate))
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content
