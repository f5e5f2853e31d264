"""`fairlease certs`: the certificates by which a bus and those who connect to it know each other."""

import argparse

from fairlease.cli.exits import CommandError
from fairlease.runtime import certificates
from fairlease.runtime.errors import EXIT_CONFIG, ConfigWrong
from fairlease.runtime.settings import read_settings
from fairlease.runtime.tls import AUTHORITY, CERTIFICATE


def run(args: argparse.Namespace) -> int:
    """0 when they are there; 7 when they are there already, or what is there cannot be gone on from."""
    make = certificates.renew if args.renew else certificates.replace if args.force else certificates.make
    try:
        found = make(read_settings().state_dir, args.name)
    except ConfigWrong as error:
        raise CommandError(EXIT_CONFIG, str(error)) from error
    except OSError as error:
        way_out = "mend its rights or choose another FAIRLEASE_HOME"
        raise CommandError(EXIT_CONFIG, f"{error.filename}: {error.strerror}", way_out=way_out) from error
    print(f"authority {found.directory / AUTHORITY}, until {found.authority_ends:%Y-%m-%d}")
    print(f"  sha256 {found.fingerprint}")
    print(f"server    {found.directory / CERTIFICATE}, until {found.server_ends:%Y-%m-%d}")
    print(f"  for {', '.join(found.names)}")
    if args.renew:
        print("a cell of `fairlease up --tls` takes it at once; reload any other bus")
    else:
        print("next: `fairlease up --tls`; who connects from elsewhere needs ca.crt and nothing else (FAIRLEASE_CA)")
    return 0
