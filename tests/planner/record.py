"""`make plans`: writes the EXPLAIN of every recorded plan next to it, so that a change of the planner is a diff to review."""

from __future__ import annotations

import sys

from tests.planner.planned import PLANS, explained


def main() -> None:
    """Record all plans; print which changed."""
    for plan in PLANS:
        text, recorded = explained(plan), plan.with_suffix(".plan")
        if not recorded.exists() or recorded.read_text(encoding="utf-8") != text:
            recorded.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{plan.stem}\n")


if __name__ == "__main__":
    main()
