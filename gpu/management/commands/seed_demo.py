"""`manage.py seed_demo`: the simulated lab with people, tenants and offerings."""

from argparse import ArgumentParser
from typing import override

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from gpu import gateways
from gpu.management import seeding


class Command(BaseCommand):
    """Fill an empty portal for the demo; what is there already stays."""

    help = "Fills an empty portal with a simulated lab, people, tenants and offerings."

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--on-cluster", action="store_true", help="people and tenants on a real cluster"
        )
        parser.add_argument(
            "--mig-manager", metavar="NODE", help="let a GPU Operator's mig-manager run on a node"
        )

    @override
    def handle(self, *_arguments: object, **options: object) -> None:
        if settings.CLUSTER != "simulated":
            if not options["on_cluster"]:
                message = (
                    "seed_demo makes people with a public password: it needs CLUSTER=simulated,"
                    " or --on-cluster for a cluster that is there for trying things out."
                )
                raise CommandError(message)
            seeding.seed(gateways.cluster(), say=self.stdout.write, with_wishes=False)
            return
        from gpu.adapters.simulated import SimulatedCluster, build_lab  # noqa: PLC0415  # only here
        from gpu.adapters.simulated.operator_parts import give_mig_manager  # noqa: PLC0415

        cluster = gateways.cluster()
        assert isinstance(cluster, SimulatedCluster)  # noqa: S101  # by the setting just checked
        build_lab(cluster)
        if options["mig_manager"]:
            try:
                give_mig_manager(cluster, str(options["mig_manager"]))
            except ValueError as error:
                message = f"--mig-manager: {error}"
                raise CommandError(message) from error
        seeding.seed(cluster, say=self.stdout.write)
