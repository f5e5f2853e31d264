"""A collector of traces, reached by OTLP over HTTP in its JSON form."""

from http import client
from typing import Final
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 5.0
_PATH: Final = "/v1/traces"


class HttpSink:
    """Posts each export to a collector, on a connection of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connect = client.HTTPSConnection if parts.scheme == "https" else client.HTTPConnection
        self._where, self._path = parts.netloc, parts.path.rstrip("/") or _PATH

    def send(self, export: bytes) -> None:
        connection = self._connect(self._where, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", self._path, export, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except client.HTTPException as error:
            raise OSError(f"the collector answers what is not HTTP ({type(error).__name__})") from error
        finally:
            connection.close()
        if status >= 300:
            raise OSError(f"the collector answers {status}")
