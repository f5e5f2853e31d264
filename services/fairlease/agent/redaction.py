"""What a job printed, without what looks like a secret in it.

Output is kept for people who look for a cause, and shown to more of them than the job's owner. So whatever
has the form of a key, a token or a password goes, and rather too much than too little; but a token's
numbers stay, because training code prints `tokens: 4096` all day. What is known as a credential elsewhere (1.13) and
has escaped all of these takes its whole line with it. Every pattern is bounded: no text takes more than
a few passes.
"""

import re
from typing import Final

from fairlease_schemas.credential import kind_of

MASK: Final = "[redacted]"

_START: Final = r"(?<![A-Za-z0-9_-])"
_KEY_BLOCK: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_NUMBER: Final = r"(?![-+]?[\d.,_]+(?:e[-+]?\d+)?[ ]?[%kKMGTB]?(?:[\s,;:)\]}]|$))"
_QUOTED: Final = r"\"[^\"\n]{1,512}\"|'[^'\n]{1,512}'"

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
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
            r"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s{1,3})?)[^\s\"',;]+"
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)\b(bearer\s{1,3})[A-Za-z0-9._~+/=-]{8,}"), rf"\1{MASK}"),
    (re.compile(r"(?i)\b((?:set-)?cookie\s{0,3}:\s{0,3})[^\n]+"), rf"\1{MASK}"),
    # values by their names: of passwords and keys whatever it is, of tokens what is no number
    (
        re.compile(
            r"(?i)((?:passwords?|passwd|passphrase|secrets?|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]?id)?"
            rf"|account[_-]?key|private[_-]?key|credentials?)[\"']?\s{{0,3}}[=:]\s{{0,3}})(?:{_QUOTED}|[^\s,;&\"']+)"
        ),
        rf"\1{MASK}",
    ),
    (
        re.compile(rf"(?i)(token[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?){_NUMBER}[A-Za-z0-9_.~+/=:-]{{8,}}"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(?i)(--?[\w-]{0,32}(?:password|passwd|secret|token|api-?key)\s{1,3})(?!-)[^\s]+"), rf"\1{MASK}"),
    # forms that are known
    (re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"), MASK),
    (re.compile(_START + r"(?:gh[opusr]_|github_pat_|glpat-|hf_|npm_|dop_v1_|pypi-)[A-Za-z0-9_-]{16,}"), MASK),
    (re.compile(_START + r"(?:sk|pk|rk)-(?:[a-z0-9]+-){0,3}[A-Za-z0-9_-]{20,}"), MASK),
    (re.compile(_START + r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"), MASK),
    (re.compile(_START + r"AIza[A-Za-z0-9_-]{35}"), MASK),
    (re.compile(_START + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"), MASK),
    (re.compile(_START + r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"), MASK),
    (re.compile(_START + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), MASK),
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
