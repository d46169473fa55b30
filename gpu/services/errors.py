"""Why a service said no, in words for the person who asked."""


class ServiceError(Exception):
    """The change was refused and nothing was changed; the text says why and what to do."""

    def __init__(self, message: object, *, field: str = "") -> None:
        """Keep the sentence, and the name of the form field that it is about, if any."""
        super().__init__(message)
        self.message = message
        self.field = field


class WrongStateError(ServiceError):
    """The object is past the state in which this can be done."""


class NotAllowedError(ServiceError):
    """The person has no right to do this here."""


class NoRoomError(ServiceError):
    """Somebody else got there first, or there never was room; the request keeps waiting."""


class QuotaExceededError(ServiceError):
    """The tenant's quota does not hold this."""
