"""Addresses of hosts as they stand in the log and in orders: bounded text that is an IP address or a host name.

They come from agents and end in the environment of jobs, so nothing else is let through.
"""

import ipaddress
import re
from typing import Final

_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
)
_NUMBERS: Final = re.compile(r"[0-9.]+")
_IP6: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}")


def is_address(text: str) -> bool:
    """Whether a rank can be told to meet the others at `text`: a host name, or an IP address without a zone."""
    if _HOST_NAME.fullmatch(text) is not None and _NUMBERS.fullmatch(text) is None:
        return True
    if _IP6.fullmatch(text) is None:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
