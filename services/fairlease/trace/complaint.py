"""Why there is no report, in the form the command line uses for errors: what plays a recorded workload ends so."""

import json
import sys
from typing import Final

DATA_FORMATS: Final = ("json", "jsonl", "yaml")
"""Outputs that programs read: their errors are data too."""


def complain(text: str, code: int, *, is_data: bool) -> int:
    """Say on standard error why there is no report; the exit code, handed back."""
    line = f"fairlease: {text}"
    if is_data:
        facts = {"apiVersion": "fairlease/v1", "kind": "Error", "exit_code": code, "text": text}
        line = json.dumps({**facts, "way_out": "", "problems": []}, ensure_ascii=False)
    sys.stderr.write(line + "\n")
    return code
