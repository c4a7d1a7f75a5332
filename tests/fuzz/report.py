"""What a part of the harness found: counts by kind, and failures with what reproduces them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_SHOWN_FAILURES = 20


@dataclass
class Report:
    """Counts of what was tried, and the failures.

    :param part: name of the part, such as ``"files"``
    :ivar counts: number of cases by kind, such as ``{"el.zst": 120}``
    :ivar failures: one text per failure, which names the seed and the case
    """

    part: str
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def count(self, kind: str, number: int = 1) -> None:
        """Add to the number of cases of a kind."""
        self.counts[kind] += number

    def fail(self, kind: str, reproduce: str, message: str) -> None:
        """Add a failure.

        :param reproduce: arguments or code that show it again
        """
        self.failures.append(f"{self.part}, {kind} ({reproduce}): {message}")

    def add(self, other: Report) -> None:
        """Add the counts and failures of another report."""
        self.counts.update(other.counts)
        self.failures.extend(other.failures)

    def text(self) -> str:
        """Return the counts in lines, most frequent kinds first, and the failures below them."""
        total = sum(self.counts.values())
        lines = [f"{self.part}: {total:,} cases, {len(self.failures):,} failures"]
        lines += [f"  {number:>9,}  {kind}" for kind, number in self.counts.most_common()]
        lines += [f"  FAILED {failure}" for failure in self.failures[:_SHOWN_FAILURES]]
        if len(self.failures) > _SHOWN_FAILURES:
            lines.append(f"  and {len(self.failures) - _SHOWN_FAILURES:,} more failures")
        return "\n".join(lines)
