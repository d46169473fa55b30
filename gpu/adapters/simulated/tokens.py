"""Tokens of service accounts in the lab: of the right form, and good for nothing."""

import secrets
from datetime import UTC, datetime, timedelta

from gpu.adapters.simulated.store import Transaction
from gpu.ports import SERVICE_ACCOUNT, Endpoint, NotFoundError, RefusedError, Token

_SHORTEST_S = 600
ENDPOINT = Endpoint("https://simulated-lab.invalid:6443")


def new_token(
    tx: Transaction, account: str, namespace: str, *, lifetime_s: int, now: float
) -> Token:
    """Return a token for an account that is there; shorter than ten minutes is refused."""
    if tx.get(SERVICE_ACCOUNT, account, namespace) is None:
        msg = f'serviceaccounts "{account}" not found'
        raise NotFoundError(msg)
    if lifetime_s < _SHORTEST_S:
        msg = (
            f"spec.expirationSeconds: Invalid value: {lifetime_s}: may not specify a duration less"
            " than 10 minutes"
        )
        raise RefusedError(msg)
    ends_at = datetime.fromtimestamp(int(now), tz=UTC) + timedelta(seconds=lifetime_s)
    return Token(f"simulated.{secrets.token_urlsafe(24)}", ends_at)
