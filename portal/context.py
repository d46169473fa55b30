"""What every page template knows about the portal itself."""

from django.conf import settings
from django.http import HttpRequest

from portal import health


def portal(request: HttpRequest) -> dict[str, object]:
    """Return `is_simulated` for the banner and `broken_parts` (broker, worker, watcher)."""
    return {
        "is_simulated": settings.CLUSTER == "simulated",
        "broken_parts": health.broken_parts(),
        "request_id": getattr(request, "request_id", ""),
    }
