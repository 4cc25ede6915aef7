"""Writes the golden digests anew, where a change of results is meant:

    python -m tests_py.golden.write

It refuses a program whose configurations do not agree. The diff of ``digests.json`` shows which programs changed.
"""

from __future__ import annotations

import sys

from tests_py.golden.digest import all_digests
from tests_py.golden.file import PARTS, Digests, differences, write
from tests_py.golden.sources import NAMES


def main() -> int:
    """Compute and write; 1 if configurations of a program differ."""
    digests: Digests = {}
    wrong = 0
    for name in NAMES:
        found = list(all_digests(name))
        first = dict(item for _, parts in reversed(found) for item in parts.items())
        digests[name] = {part: first[part] for part in PARTS}
        for text in differences(digests[name], found):
            wrong += 1
            print(f"{name}: {text}", file=sys.stderr)
    if not wrong:
        write(digests)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
