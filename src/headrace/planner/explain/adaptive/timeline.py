"""EXPLAIN ADAPTIVE as a picture over time: of each conjunction, side of a join and tree of joins a line of epochs, coloured by the choice
that was in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from headrace.dataclass import dataclass

_COLOURS: Final = ("#bfdbfe", "#fde68a", "#bbf7d0", "#fecaca", "#ddd6fe", "#fed7aa", "#a5f3fc", "#e5e7eb")
_LEFT: Final = 220
"""Points for the titles of lines."""
_WIDTH: Final = 760
"""Points for all epochs."""
_HEIGHT: Final = 22
_TOP: Final = 56
_LETTER: Final = 6.2
"""Points of a letter, about."""


@dataclass(frozen=True, slots=True)
class Track:
    """What was in force in each epoch in which it was observed, oldest first."""

    title: str
    choices: Sequence[tuple[int, str]]

    def periods(self) -> list[tuple[int, int, str]]:
        """The first and the last epoch of each choice."""
        runs = (list(run) for _, run in groupby(self.choices, key=lambda entry: entry[1]))
        return [(run[0][0], run[-1][0], run[0][1]) for run in runs]


def timeline(title: str, tracks: Sequence[Track]) -> str:
    """The picture as a complete document, in UTF-8."""
    shown = [track for track in tracks if track.choices]
    first = min((track.choices[0][0] for track in shown), default=1)
    last = max((track.choices[-1][0] for track in shown), default=first)
    height = _TOP + len(shown) * (_HEIGHT + 6) + 30
    width = _LEFT + _WIDTH + 24
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            ' font-family="Helvetica, Arial, sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="30" font-size="15" fill="#0f172a">{escape(title)}</text>',
    ]
    for number, track in enumerate(shown):
        parts += _line(track, _TOP + number * (_HEIGHT + 6), first, last)
    parts += [
        f'<text x="{_LEFT}" y="{height - 12}" fill="#475569">epoch {first}</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{height - 12}" fill="#475569" text-anchor="end">epoch {last}</text>',
        "</svg>",
    ]
    return "\n".join(parts)


def _line(track: Track, y: int, first: int, last: int) -> Iterator[str]:
    """One line: a rectangle for each period, from its first epoch to that of the next one."""
    yield f'<text x="16" y="{y + 15}" fill="#0f172a">{escape(track.title[:34])}</text>'
    periods, each = track.periods(), _WIDTH / (last - first + 1)
    colours = {
        choice: _COLOURS[n % len(_COLOURS)] for n, choice in enumerate(dict.fromkeys(at[2] for at in periods))
    }
    begins = [begin for begin, _, _ in periods]
    for (begin, end, choice), following in zip(periods, [*begins[1:], periods[-1][1] + 1], strict=True):
        x, wide = _LEFT + (begin - first) * each, max(1.0, (following - begin) * each - 1)
        text = choice if len(choice) * _LETTER < wide - 6 else ""
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_HEIGHT}" fill="{colours[choice]}">'
            f"<title>epochs {begin} to {end}: {escape(choice)}</title></rect>"
        )
        if text:
            yield f'<text x="{x + 4:.1f}" y="{y + 15}" fill="#0f172a">{escape(text)}</text>'
