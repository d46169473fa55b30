"""`manage.py watch_cluster`: keeps the inventory like the cluster, until stopped."""

import gc
import signal
from types import FrameType
from typing import override

from django.core.management.base import BaseCommand

from gpu import gateways
from gpu.reconcilers.watching import Watcher
from portal import health


class Command(BaseCommand):
    """Follow nodes and GPU Pods; SIGTERM or Ctrl-C ends it after the present batch."""

    help = "Keeps the inventory in the database like the cluster, until stopped."

    @override
    def handle(self, *_arguments: object, **_options: object) -> None:
        watcher = Watcher(gateways.cluster(), on_beat=lambda: health.beat("watcher"))

        def stop(_signal: int, _frame: FrameType | None) -> None:
            watcher.stopping.set()

        # What has been imported stays: the collector need not go through it between events.
        gc.freeze()
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        watcher.run()
