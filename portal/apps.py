"""The project as an application: its commands and its own tasks."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Composition root."""

    name = "portal"
