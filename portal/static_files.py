"""Style sheets, scripts and pictures under ASGI."""

from typing import override

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise has no types
    """Serves files whole: Django under ASGI would stream them in a thread, with a warning each."""

    @staticmethod
    @override
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """Answer with one of our files, the largest of which has some 200 KB."""
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file:
                content = found.file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response
