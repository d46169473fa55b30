"""What goes wrong when a service of our own does not start."""


class EmbeddedError(RuntimeError):
    """A service cannot be started; the message is one sentence with the way out."""
