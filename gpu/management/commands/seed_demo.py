"""`manage.py seed_demo`: the simulated lab with people, tenants and offerings."""

from typing import override

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpu import gateways
from gpu.management import seeding


class Command(BaseCommand):
    """Fill an empty portal for the demo; what is there already stays."""

    help = "Fills an empty portal with a simulated lab, people, tenants and offerings."

    @override
    def handle(self, *_arguments: object, **_options: object) -> None:
        if settings.CLUSTER != "simulated":
            message = "seed_demo makes people with a public password; it needs CLUSTER=simulated."
            raise CommandError(message)
        from gpu.adapters.simulated import SimulatedCluster, build_lab  # noqa: PLC0415  # only here

        cluster = gateways.cluster()
        assert isinstance(cluster, SimulatedCluster)  # noqa: S101  # by the setting just checked
        build_lab(cluster)
        seeding.seed(cluster, say=self.stdout.write)
