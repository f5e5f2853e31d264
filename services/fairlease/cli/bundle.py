"""`bundle DIR`: the digest that a directory has as a code bundle, for contracts that are written by programs."""

import argparse
import json

from fairlease.cli.exits import OK
from fairlease.cli.output import output_of, print_data, print_text
from fairlease.cli.packing import pack


def run(args: argparse.Namespace) -> int:
    """Pack, print the digest, and forget the rest; 0, or CommandError 65."""
    packed = pack(args.directory)
    output = output_of(args)
    if not output.is_data:
        print_text(packed.bundle + "\n")
        return OK
    view = {
        "apiVersion": "fairlease/v1",
        "kind": "Bundle",
        "bundle": packed.bundle,
        "bytes": len(packed.data),
        "files": packed.entries,
    }
    print_data(output.form, json.dumps(view).encode(), (packed.bundle,))
    return OK
