"""The portal's addresses, with the style guide and one live page that the design tests drive."""

from itertools import count

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.template import RequestContext, Template
from django.urls import path

from portal import live, styleguide
from portal.urls import urlpatterns as portal_urls

_RENDERED = count(1)
_PAGE = """\
{% extends "base.html" %}
{% block main %}
<section id="facts" hx-get="/live-page/" hx-trigger="sse:gpus" hx-target="#facts"
  hx-swap="outerHTML">
  <p id="number">{{ number }}</p>
  <details id="more"><summary>More</summary><p>Detail {{ number }}</p></details>
  <label for="note">Note</label><input id="note" value="{{ number }}">
  <table class="table"><thead><tr><th scope="col">Node</th><th scope="col">GPUs</th></tr></thead>
    <tbody><tr><td>gpu-01</td><td class="num">{{ number }}</td></tr></tbody></table>
</section>
{% endblock %}
"""


@login_not_required
def live_page(request: HttpRequest) -> HttpResponse:
    """Answer a page whose fragment says how often it has been rendered."""
    source = _PAGE
    if request.headers.get("HX-Request"):
        source = _PAGE.partition("{% block main %}")[2].partition("{% endblock %}")[0]
    context = {"number": next(_RENDERED), "live_token": live.sign_topics(1, ["gpus"])}
    return HttpResponse(Template(source).render(RequestContext(request, context)))


urlpatterns = [
    path("styleguide/", styleguide.styleguide),
    path("live-page/", live_page),
    *portal_urls,
]
handler500 = "portal.views.server_error"
