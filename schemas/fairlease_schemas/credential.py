"""What looks like a secret: known forms of keys and tokens, so that none comes into a contract or the log (1.13).

Forms only. Text that merely looks random is let be: digests, seeds and run names do too, and a rule that
cries wolf is switched off. Every pattern is anchored so that no text takes more than a few passes.

A form has two patterns. The strict one refuses a contract, so it must be sure. The loose one takes text out of logs and
output, so it rather takes too much: a token that was cut, or one of a length that its kind had not yet.
"""

import re
from typing import Final, NamedTuple

_START: Final = r"(?<![A-Za-z0-9_-])"
_END: Final = r"(?![A-Za-z0-9])"
_AWS_KEY: Final = re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}" + _END)


class Form(NamedTuple):
    """What is said of it, what is surely one, and the whole of what may be one; a form may lack either pattern."""

    kind: str
    strict: re.Pattern[str] | None
    loose: re.Pattern[str] | None


def _form(kind: str, strict: str = "", loose: str = "") -> Form:
    return Form(kind, *(re.compile(_START + one) if one else None for one in (strict, loose)))


FORMS: Final = (
    Form("an AWS access key", _AWS_KEY, _AWS_KEY),
    Form(
        "an AWS secret key",
        re.compile(r"(?i:aws_?(?:secret_?)?access_?key)[\"']?\s?[=:]\s?[\"']?[A-Za-z0-9/+]{40}"),
        None,
    ),
    _form(
        "a GitHub token",
        r"(?:gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})",
        r"(?:gh[opusr]|github_pat)_[A-Za-z0-9_-]{16,}",
    ),
    _form("a GitLab token", r"glpat-[A-Za-z0-9_-]{20}", r"glpat-[A-Za-z0-9_-]{16,}"),
    _form("a Hugging Face token", r"hf_[A-Za-z0-9]{30}", r"hf_[A-Za-z0-9_-]{16,}"),
    _form("a token of a package index", loose=r"(?:npm_|pypi-)[A-Za-z0-9_-]{16,}"),
    _form("a DigitalOcean token", loose=r"dop_v1_[A-Za-z0-9_-]{16,}"),
    _form("an API key", r"sk-(?:[a-z]+-)?[A-Za-z0-9]{32}", r"(?:sk|pk|rk)-(?:[a-z0-9]+-){0,3}[A-Za-z0-9_-]{20,}"),
    _form("an API key", r"AIza[A-Za-z0-9_-]{35}", r"AIza[A-Za-z0-9_-]{35}"),
    _form("a Stripe key", loose=r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    _form("a Slack token", r"xox[abeoprs]-[A-Za-z0-9-]{10}", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _form("an age key", loose=r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _form("a seed of a key of NATS", loose=r"S[UAONCX][A-Z2-7]{56}(?![A-Z2-7])"),
    _form(
        "a JSON Web Token",
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8}",
        r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    ),
    # Whose whole extent is not one word: redaction has patterns of its own for these.
    Form("a private key", re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY"), None),
    Form("a password in a URL", re.compile(r"://[^/?#\s:@]*:(?!\$)[^/?#\s@]+@"), None),
    Form("a token in a URL", re.compile(r"https?://(?!\$)[^/?#\s:@]+@"), None),
)
"""The one table of both. A part of an address that begins with `$` is a variable, not a secret."""

SECRET_NAMES: Final = frozenset(("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
"""Variables that never hold anything else, whatever their value looks like."""


def kind_of(text: str) -> str:
    """What the text seems to hold, for example `a GitHub token`; empty when nothing known."""
    return next((form.kind for form in FORMS if form.strict is not None and form.strict.search(text)), "")
