"""`zfstune licences`: the licence of each part of this copy."""

from __future__ import annotations

import argparse
import json

from zfstune.errors import DONE
from zfstune.inside import held


def run(args: argparse.Namespace) -> int:
    """The command."""
    parts = held.licences()
    if args.json:
        print(json.dumps({"schema": 1, "type": "licences", "parts": parts}))
        return DONE
    for part in parts:
        print(f"{part['name']} {part['version']}: {part['licence']}")
        if part["source"]:
            print(f"source: {part['source']}")
        print(f"\n{part['text'].rstrip()}\n")
    return DONE
