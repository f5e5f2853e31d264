"""A real Chromium, driven over its DevTools pipe: two file descriptors, messages of JSON with a zero byte between.

Nothing of it needs a package: what is asked of it are a dozen commands of a published protocol.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

Data = dict[str, Any]

PROGRAM: Final = "chromium"
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe"),
)
_PATIENCE_S: Final = 180.0


class Browser:
    """One browser. A page is a session of it."""

    def __init__(self, process: "subprocess.Popen[bytes]", says: int, hears: int) -> None:
        self._process = process
        self._says, self._hears = says, hears
        self._number = 0
        self._left = b""
        self.events: list[Data] = []

    def ask(self, method: str, session: str = "", **params: Any) -> Data:  # noqa: ANN401 - the protocol's own values
        """The answer to a command; what is told meanwhile is kept in `events`."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._says, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") != number:
                self.events.append(told)
                continue
            assert "error" not in told, f"{method}: {told['error']}"
            answer: Data = told["result"]
            return answer

    def until(self, method: str, session: str) -> None:
        """Wait for this event of the page."""
        while not any(one.get("method") == method and one.get("sessionId") == session for one in self.events):
            self.events.append(self._next())

    def _next(self) -> Data:
        end_s = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._hears], [], [], max(0.0, end_s - time.monotonic()))
            assert ready, f"the browser says nothing for {_PATIENCE_S} s; exit code {self._process.poll()}"
            more = os.read(self._hears, 1 << 20)
            assert more, f"the browser is gone with {self._process.wait()}"
            self._left += more
        message, _, self._left = self._left.partition(b"\0")
        told: Data = json.loads(message)
        return told


class Page:
    """One page in the browser, at one width and in one scheme of colours."""

    def __init__(self, browser: Browser, width: int, scheme: str) -> None:
        self._browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.ask(f"{domain}.enable", self._session)
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def _ask(self, method: str, **params: Any) -> Data:  # noqa: ANN401 - the protocol's own values
        return self._browser.ask(method, self._session, **params)

    def open(self, path: Path) -> None:
        """Load the file, to its end."""
        self._browser.events.clear()
        self._ask("Page.navigate", url=path.as_uri())
        self._browser.until("Page.loadEventFired", self._session)

    def to_paper(self) -> None:
        """Look as on a sheet of A4."""
        self._ask("Emulation.setDeviceMetricsOverride", width=794, height=1123, deviceScaleFactor=1, mobile=False)
        self._ask("Emulation.setEmulatedMedia", media="print")

    def run(self, script: str) -> Any:  # noqa: ANN401 - whatever the script makes
        """The value of a script, awaited, run beside the page as the developer's console would."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console said: errors, warnings, exceptions, and what the page's own policy stopped."""
        told = []
        for event in self._browser.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    told.append(str(params["exceptionDetails"]["text"]))
                case "Runtime.consoleAPICalled":
                    told.append(str(params["args"]))
                case "Log.entryAdded":
                    told.append(str(params["entry"]["text"]))
                case _:
                    pass
        return told

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        wanted = [one["params"] for one in self._browser.events if one.get("method") == "Network.requestWillBeSent"]
        return [str(params["request"]["url"]) for params in wanted]


@contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """A browser with its state in this folder, gone behind."""
    program = shutil.which(PROGRAM)
    assert program, f"{PROGRAM} is not on the PATH: `make test-peers` as root on Debian installs it"
    from_us, says = os.pipe()
    hears, to_us = os.pipe()
    words = [program, *_FLAGS, f"--user-data-dir={home}", "about:blank"]
    command = f'exec "$0" "$@" 3<&{from_us} 4>&{to_us}'
    with (home.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", command, *words], pass_fds=(from_us, to_us), stdout=log, stderr=log, start_new_session=True
        )
    for theirs in (from_us, to_us):
        os.close(theirs)
    try:
        yield Browser(process, says, hears)
    finally:
        os.close(says)  # the end of its pipe is the end of the browser
        os.close(hears)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
