"""What looks like a secret: known forms of keys and tokens, so that none comes into a contract or the log (1.13).

Forms only. Text that merely looks random is let be: digests, seeds and run names do too, and a rule that
cries wolf is switched off. Every pattern is anchored so that no text takes more than a few passes.
"""

import re
from typing import Final

_START: Final = r"(?<![A-Za-z0-9_-])"
_PATTERNS: Final = (
    ("an AWS access key", re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])")),
    ("an AWS secret key", re.compile(r"(?i:aws_?(?:secret_?)?access_?key)[\"']?\s?[=:]\s?[\"']?[A-Za-z0-9/+]{40}")),
    ("a GitHub token", re.compile(_START + r"(?:gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{22})")),
    ("a GitLab token", re.compile(_START + r"glpat-[A-Za-z0-9_-]{20}")),
    ("a Hugging Face token", re.compile(_START + r"hf_[A-Za-z0-9]{30}")),
    ("an API key", re.compile(_START + r"(?:sk-(?:[a-z]+-)?[A-Za-z0-9]{32}|AIza[A-Za-z0-9_-]{35})")),
    ("a Slack token", re.compile(_START + r"xox[abeoprs]-[A-Za-z0-9-]{10}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY")),
    ("a JSON Web Token", re.compile(_START + r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8}")),
    ("a password in a URL", re.compile(r"://[^/?#\s:@]*:(?!\$)[^/?#\s@]+@")),
    ("a token in a URL", re.compile(r"https?://(?!\$)[^/?#\s:@]+@")),
)
"""What is said of it, and its form. A part that begins with `$` is a variable, not a secret."""

SECRET_NAMES: Final = frozenset(("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
"""Variables that never hold anything else, whatever their value looks like."""


def kind_of(text: str) -> str:
    """What the text seems to hold, for example `a GitHub token`; empty when nothing known."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), "")
