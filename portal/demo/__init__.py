"""The whole portal on one machine, in one terminal: services, worker, beat, watcher, web."""
