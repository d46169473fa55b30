"""Brings locale/*/LC_MESSAGES/django.po up to date with the code, without GNU gettext.

With --check nothing is written: it lists what is missing or left over and exits 1 if anything is.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from io import SEEK_END, BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_python
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("portal", "tenants", "gpu")
KEYWORDS: dict[str, tuple[object, ...] | None] = {
    "_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}
_PLACEHOLDER = re.compile(r"%\(\w+\)[sd]")
_STRING = r"""u?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_CALL = re.compile(rf"\b(?:_|n?p?gettext|np?gettext)\((?:{_STRING},? ?)+(?:count)?\)")
_SHOWN_ONLY_IN_DEBUG = {"templates/styleguide.html"}

_HEADER = """\
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: {plurals}\\n"

"""

type Key = tuple[str | None, str]


def main(arguments: list[str]) -> int:
    """Update or check every catalogue; return the exit status."""
    found = collect()
    status = 0
    for path in sorted((ROOT / "locale").glob("*/LC_MESSAGES/django.po")):
        with path.open("rb") as file:
            known = read_po(file, locale=path.parents[1].name, abort_invalid=True)
        if "--check" in arguments:
            for line in problems(known, found):
                sys.stderr.write(f"{path.relative_to(ROOT)}: {line}\n")
                status = 1
        else:
            path.write_bytes(updated(known, found))
    return status


def collect() -> Catalog:
    """Return every text of the code that is meant to be translated, with where it is."""
    catalogue = Catalog()
    for path, code in sources():
        name = str(path.relative_to(ROOT))
        for _line, function, messages, _comments in extract_python(
            BytesIO(code.encode()), KEYWORDS, ("Translators:",), {}
        ):
            texts = tuple(messages) if isinstance(messages, tuple) else (messages,)
            context = texts[0] if "p" in function.split("gettext")[0] else None
            rest = texts[1:] if context else texts
            if not rest or not all(isinstance(text, str) for text in rest[:1]):
                continue
            is_plural = function.split("_")[0].startswith(("ngettext", "npgettext"))
            catalogue.add(
                (rest[0], rest[1]) if is_plural else rest[0],
                locations=[(name, 0)],
                context=context,
            )
    return catalogue


def sources() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text as Python: templates the way that Django reads them."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts and path.name != "styleguide.py":
                yield path, path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "templates").rglob("*.html")):
        if str(path.relative_to(ROOT)) not in _SHOWN_ONLY_IN_DEBUG:
            # What is no call is gibberish to a tokenizer, where xgettext would look away.
            yield path, "\n".join(_CALL.findall(templatize(path.read_text(encoding="utf-8"))))


def problems(known: Catalog, found: Catalog) -> Iterator[str]:
    """Yield one line for each text that is missing, empty, left over or has other placeholders."""
    there, wanted = by_key(known), by_key(found)
    for key, message in wanted.items():
        translated = there.get(key)
        if translated is None or not all(texts_of(translated)):
            yield f"not translated: {key[1]!r} ({message.locations[0][0]})"
        elif translated.fuzzy:
            yield f"doubtful: {key[1]!r}"
        elif not same_placeholders(message, translated):
            yield f"other placeholders: {key[1]!r} -> {texts_of(translated)}"
    for key in there.keys() - wanted.keys():
        yield f"not used any more: {key[1]!r}"


def updated(known: Catalog, found: Catalog) -> bytes:
    """Return the catalogue with the code's texts, and the translations that are there."""
    there = by_key(known)
    fresh = Catalog(locale=known.locale)
    for key, message in by_key(found).items():
        old = there.get(key)
        files = sorted({name for name, _line in message.locations})
        fresh.add(
            message.id,
            old.string if old and bool(old.pluralizable) == bool(message.pluralizable) else None,
            locations=[(name, 0) for name in files],
            flags=message.flags,
            context=message.context,
        )
    buffer = BytesIO(_HEADER.format(language=known.locale, plurals=known.plural_forms).encode())
    buffer.seek(0, SEEK_END)
    write_po(buffer, fresh, width=0, include_lineno=False, sort_output=True, omit_header=True)
    return buffer.getvalue()


def by_key(catalogue: Iterable[Message]) -> dict[Key, Message]:
    """Return the messages by context and singular; not the header."""
    found: dict[Key, Message] = {}
    for message in catalogue:
        first = message.id[0] if isinstance(message.id, tuple | list) else message.id
        if first:
            found[message.context, first] = message
    return found


def texts_of(message: Message) -> list[str]:
    """Return the translations of a message, one for each plural form."""
    string = message.string
    return list(string) if isinstance(string, tuple | list) else [string]


def same_placeholders(source: Message, translated: Message) -> bool:
    """Say whether each translation has the placeholders of the source's last form."""
    last = source.id[-1] if isinstance(source.id, tuple | list) else source.id
    wanted = set(_PLACEHOLDER.findall(last))
    return all(set(_PLACEHOLDER.findall(text)) == wanted for text in texts_of(translated))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
