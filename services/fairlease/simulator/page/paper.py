"""Paper: HTML that is put together safely, and the sheet around it.

Text is escaped unless it is `Html`, and only `tag` and its likes make that: whatever a budget or a host is called,
it is read and never run. The sheet forbids by its own policy every script and every request, and names its one style
by digest.
"""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Final

_STYLE: Final = "page.css"
_LANGUAGES: Final = {"en": "en", "zh": "zh-Hans"}
_ALONE: Final = frozenset(("meta", "line", "path", "polyline", "rect", "circle"))


class Html(str):
    """Markup that may stand in a page as it is."""

    __slots__ = ()


def joined(parts: Iterable[str], between: str = "") -> Html:
    """The parts side by side, each escaped unless it is markup."""
    return Html(escaped(between).join(escaped(part) for part in parts))


def escaped(text: str) -> str:
    """The text as markup; markup as it is."""
    return text if isinstance(text, Html) else escape(text)


def tag(name: str, /, *inside: str, **attributes: str | int) -> Html:
    """An element. `_` in the name of an attribute is `-`, at the end of one nothing: `class_`, `aria_label`."""
    told = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    if name in _ALONE:
        assert not inside, f"{name} holds nothing"
        return Html(f"<{name}{told}>" if name == "meta" else f"<{name}{told}/>")
    return Html(f"<{name}{told}>{joined(inside)}</{name}>")


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table whose first column names its rows, in a frame that scrolls by itself where it is too wide.

    The caption names the frame too, so it is to be the only one of its words on a page.
    """
    top = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    inner = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    return tag("div", inner, class_="scroll", role="region", aria_label=caption, tabindex=0)


def folded(summary: str, *inside: str) -> Html:
    """What is shown when asked for; print shows it all."""
    return tag("details", tag("summary", summary), *inside)


def section(title: str, *inside: str) -> Html:
    """A part of the page under a heading."""
    return tag("section", tag("h2", title), *inside)


def figure(caption: str, *inside: str) -> Html:
    """A picture with what it shows."""
    return tag("figure", *inside, tag("figcaption", caption))


def sheet(title: str, lead: Sequence[str], body: Iterable[str], foot: Iterable[str], lang: str) -> str:
    """The whole page. `lead` are the sentences under the title, `foot` what the numbers rest on."""
    style = resources.files("fairlease.simulator.page").joinpath(_STYLE).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style)),
    )
    top = tag("header", tag("h1", title), *(tag("p", sentence) for sentence in lead))
    page = tag("body", top, tag("main", *body), tag("footer", *foot))
    return f"<!DOCTYPE html>\n{tag('html', head, page, lang=_LANGUAGES[lang])}\n"
