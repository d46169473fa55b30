"""`manage.py tour`: plays the main job once and prints its timeline."""

from argparse import ArgumentParser
from typing import override

from django.core.management.base import BaseCommand, CommandError

from gpu import gateways
from gpu.management import touring
from gpu.services.errors import ServiceError


class Command(BaseCommand):
    """A request, its approval, the change on a node, the proof, the slice: in one terminal."""

    help = "Plays one request through to a verified slice and prints its timeline."

    @override
    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--timeout", type=int, default=180, metavar="S", help="seconds to wait (180)"
        )
        parser.add_argument(
            "--keep", action="store_true", help="keep the slice instead of giving it back"
        )

    @override
    def handle(self, *_arguments: object, **options: object) -> None:
        limit = float(str(options["timeout"]))
        try:
            touring.play(
                gateways.cluster(),
                say=self.stdout.write,
                timeout_s=limit,
                keeps=bool(options["keep"]),
            )
        except (touring.TourError, ServiceError) as error:
            raise CommandError(str(error)) from error
