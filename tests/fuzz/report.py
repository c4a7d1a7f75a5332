"""What a part of the harness found: counts by kind, and failures with what reproduces them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_SHOWN_FAILURES = 20
_ALIKE_CHARACTERS = 120


@dataclass(frozen=True)
class Failure:
    """One failure.

    :param kind: of the case
    :param reproduce: arguments or code that show it again
    :param message: what is wrong
    """

    kind: str
    reproduce: str
    message: str

    @property
    def alike(self) -> str:
        """The message without numbers, names and arrays: equal for failures that are likely the same."""
        return re.sub(r"'[^']*'|\[.*|[\d.,e+-]+|/\S+", "", self.message)[:_ALIKE_CHARACTERS]


@dataclass
class Report:
    """Counts of what was tried, and the failures.

    :param part: name of the part, such as ``"files"``
    :ivar counts: number of cases by kind, such as ``{"el.zst": 120}``
    :ivar failures: what failed, and how to see it again
    """

    part: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def count(self, kind: str, number: int = 1) -> None:
        """Add to the number of cases of a kind."""
        self.counts[kind] += number

    def fail(self, kind: str, reproduce: str, message: str) -> None:
        """Add a failure.

        :param reproduce: arguments or code that show it again
        """
        self.failures.append(Failure(kind, reproduce, message))

    def add(self, other: Report) -> None:
        """Add the counts and failures of another report."""
        self.counts.update(other.counts)
        self.failures.extend(other.failures)

    def text(self) -> str:
        """Return the counts in lines, most frequent kinds first, and the failures below them."""
        total = sum(self.counts.values())
        lines = [f"{self.part}: {total:,} cases, {len(self.failures):,} failures"]
        lines += [f"  {number:>9,}  {kind}" for kind, number in self.counts.most_common()]
        alike: dict[str, list[Failure]] = {}
        for failure in self.failures:
            alike.setdefault(failure.alike, []).append(failure)
        for failures in list(alike.values())[:_SHOWN_FAILURES]:
            first = min(failures, key=lambda failure: len(failure.message))
            lines.append(f"  FAILED {len(failures):,} times, {first.kind}: {first.message}")
            lines.append(f"         {first.reproduce}")
        if len(alike) > _SHOWN_FAILURES:
            lines.append(f"  and {len(alike) - _SHOWN_FAILURES:,} other kinds of failures")
        return "\n".join(lines)
