"""`fairlease demo` as a newcomer runs it: every chapter is seen to happen, by the log."""

import json
import os
import subprocess
import sys


def test_the_demo_shows_what_it_promises_to_show() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlease", "demo", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["apiVersion"], report["kind"]) == ("fairlease/v1", "DemoReport")
    assert report["promise"]["kept"], report
    assert report["drain"]["actual_s"] <= report["drain"]["promised_s"]
    assert (report["window_breaks"], report["resumed_ok"], report["replay"]["divergences"]) == (0, True, 0)
