"""Property tests without a deadline, for slow machines, and with examples enough."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "planning", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("planning")
