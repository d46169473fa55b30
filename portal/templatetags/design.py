"""The design system's tags: icons out of the one sprite that `npm run vendor` builds."""

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """Draw an icon of the sprite, silent beside words; alone it needs a `label`."""
    url = static("vendor/icons.svg")
    if not label:
        return format_html(
            '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', url, name
        )
    return format_html(
        '<svg class="icon" role="img" aria-label="{}"><use href="{}#{}"></use></svg>',
        label,
        url,
        name,
    )
