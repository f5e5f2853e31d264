"""Text without what looks like a secret in it: what a job printed, what a process logs.

Both are kept for people who look for a cause, and shown to more of them than the owner. So whatever
has the form of a key, a token or a password goes, and rather too much than too little; but a token's
numbers stay, because training code prints `tokens: 4096` all day. What is known as a credential elsewhere (1.13) and
has escaped all of these takes its whole line with it. Every pattern is bounded: no text takes more than
a few passes. A secret without a form is known only by the variable that holds it: `secrets_in` says which.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from fairlease.runtime.secret import Secret
from fairlease_schemas.credential import FORMS, SECRET_NAMES, kind_of

MASK: Final = "[redacted]"

LEAST_KNOWN: Final = 6
"""A shorter value of a variable is no secret worth the name, and would mask words everywhere."""
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:password|passwd|passphrase|secret|token|credentials?|headers|api_?key|access_?key|private_?key)s?$"
)
_IN_URL: Final = re.compile(r"://([^\s/?#@]{1,256})@")
_KEY_BLOCK: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_NUMBER: Final = r"(?![-+]?[\d.,_]+(?:e[-+]?\d+)?[ ]?[%kKMGTB]?(?:[\s,;:)\]}]|$))"
_OPEN: Final = r"\\{0,3}[\"']?"
"""A quotation mark, with the backslashes that it has where JSON stands in a text of JSON."""
_IS: Final = _OPEN + r"\s{0,3}[:=]\s{0,3}"
_QUOTED: Final = (
    r"\\{1,3}\"[^\"\n]*\"?|\\{1,3}'[^'\n]*'?"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?"
)
"""To its end, or to that of the line where it has none. It always takes what it looked at, so that no text is slow."""
_SCHEME: Final = r"(?:bearer|basic|token|digest|negotiate|apikey)\s{1,3}"

_RULES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # blocks of private keys, and what is left of one that began before this text, or that ends behind it
    (re.compile(rf"-----BEGIN {_KEY_BLOCK}.*?(?:-----END {_KEY_BLOCK}|\Z)", re.DOTALL), MASK),
    (re.compile(rf"\A.*-----END {_KEY_BLOCK}", re.DOTALL), MASK),
    # users and passwords in addresses
    (re.compile(r"(://)[^\s/?#@]{0,256}:[^\s/?#]{1,256}@"), rf"\1{MASK}@"),
    (re.compile(r"(https?://)[^\s/?#@]{1,256}@"), rf"\1{MASK}@"),
    # what signs an address
    (
        re.compile(r"(?i)([?&][\w.-]{0,40}(?:sig|signature|token|key|secret|password|credential)=)[^&\s\"'<>]+"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(https://hooks\.slack\.com/[a-z]{1,20}/)[A-Za-z0-9/_-]+"), rf"\1{MASK}"),
    # headers
    (re.compile(rf"(?i)\b((?:proxy-)?authorization{_IS}{_OPEN}{_SCHEME})[^\s\"',;]+"), rf"\1{MASK}"),
    # of another scheme, or of none: whatever two words there are
    (
        re.compile(
            rf"(?i)\b((?:proxy-)?authorization{_IS}{_OPEN})(?!{_OPEN}{_SCHEME})[^\s\"',;]+(?:[ \t]{{1,3}}[^\s\"',;]+)?"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,3})[A-Za-z0-9._~+/=-]{8,}"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b((?:set-)?cookie\s{0,3}:\s{0,3})[^\n]+"), rf"\1{MASK}"),
    # values by their names: of passwords and keys whatever it is, of tokens what is no number
    (
        re.compile(
            r"(?i)((?:passwords?|passwd|passphrase|secrets?|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]?id)?"
            rf"|account[_-]?key|private[_-]?key|credentials?){_IS})(?:{_QUOTED}|[^\s,;&\"']+)"
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(rf"(?i)(token{_IS}{_OPEN}){_NUMBER}[A-Za-z0-9_.~+/=:-]{{8,}}"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)(--?[\w-]{0,32}(?:password|passwd|secret|token|api-?key)\s{1,3})(?!-)[^\s]+"), rf"\1{MASK}"),
    # forms that are known
    *((form.loose, MASK) for form in FORMS if form.loose is not None),
)
"""What goes, and what stands there instead."""


def redacted(text: str) -> str:
    """The text without what looks like a secret; lines stay lines, but for those of a key's block."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    kind = kind_of(line.replace(MASK, "$"))  # as a variable stands in place of a secret
    return f"[a line with {kind} was redacted]" if kind else line


def secrets_in(env: Mapping[str, str]) -> tuple[Secret, ...]:
    """What an environment holds that must never be told, longest first.

    Those are the values of variables whose name says so, and passwords, or lone users, in any address.
    """
    found: set[str] = set()
    for name, value in env.items():
        if name in SECRET_NAMES or _SECRET_NAME.search(name):
            found.add(value)
            if name.upper().endswith("HEADERS"):  # as OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer abc,other=def`
                found.update(part.partition("=")[2].strip() for part in value.split(","))
        for match in _IN_URL.finditer(value):
            user, colon, password = match[1].partition(":")
            found.add(password if colon else user)
    known = sorted((one for one in found if len(one) >= LEAST_KNOWN), key=lambda one: (-len(one), one))
    return tuple(map(Secret, known))


def without(text: str, known: Iterable[Secret]) -> str:
    """`redacted`, and without these secrets, whatever they look like."""
    for secret in known:
        text = text.replace(secret.reveal(), MASK)
    return redacted(text)
