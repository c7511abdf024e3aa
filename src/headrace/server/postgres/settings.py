"""Settings of one PostgreSQL session (SET, SHOW): values and their checks, time limits in seconds, and names as they are
meant.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from headrace.dataclass import dataclass
from headrace.server.postgres.protocol.problems import Failed
from headrace.server.postgres.tables.system_tables import VERSION
from headrace.zones import rules_of

_REPORTED: Final = {
    "server_version": f"{VERSION} (Headrace)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "is_superuser": "off",
    "session_authorization": "headrace",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}
"""Settings of which a client hears when it connects, and when they change."""
_OTHERS: Final = {
    "search_path": "public",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "60s",
    "follow_timeout": "10s",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "extra_float_digits": "1",
    "client_min_messages": "notice",
    "datestyle": "ISO, MDY",
}
_SHOWN: Final = {"time zone": "timezone", "transaction isolation level": "transaction_isolation"}
_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "": 1e-3}


@dataclass(slots=True)
class Settings:
    """The values; `reported` are those of which a client hears."""

    reported: dict[str, str] = field(default_factory=lambda: dict(_REPORTED))
    _others: dict[str, str] = field(default_factory=lambda: dict(_OTHERS))

    @property
    def zone(self) -> str:
        """The time zone."""
        return self.reported["TimeZone"]

    def seconds(self, name: str) -> float:
        """A setting that is a length of time."""
        return seconds_of(self._others[name]) or 0.0

    def put(self, name: str, value: str) -> tuple[str, ...]:
        """Change a setting; its name, where clients want to know.

        Raises `Failed` for a value that it cannot have.
        """
        reported = {known.lower(): known for known in _REPORTED}.get(name.lower())
        key = name.lower()
        if key == "timezone" and value.upper() in ("DEFAULT", "LOCAL"):
            value = "UTC"
        is_right = {
            "client_encoding": lambda: value.upper().replace("-", "") in ("UTF8", "UNICODE", "DEFAULT"),
            "timezone": lambda: rules_of(value) is not None and re.fullmatch(r"[\w/+:-]+", value),
            "datestyle": lambda: value.upper().startswith(("ISO", "DEFAULT")),
            "statement_timeout": lambda: seconds_of(value) is not None,
            "follow_timeout": lambda: seconds_of(value) is not None,
        }.get(key, lambda: True)()
        if not is_right:
            raise Failed("22023", f'invalid value for parameter "{name}": "{value}"')
        if reported is None:
            self._others[key] = value
            return ()
        if key not in ("application_name", "timezone"):
            return ()
        self.reported[reported] = value
        return (reported,)

    def shown(self, asked: str) -> tuple[str, str] | None:
        """The name and the value of the setting that SHOW names; None where it names none."""
        name = _SHOWN.get(asked.lower(), asked.lower())
        every = {known.lower(): value for known, value in self.reported.items()} | self._others
        every["timezone"] = self.zone
        return (name, every[name]) if name in every else None


def seconds_of(text: str) -> float | None:
    """A length of time such as `500ms`, `10 s` or `60000`, in seconds; None for what is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h|)", text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def name_of(text: str) -> str:
    """A name as it is meant: in small letters unless it is quoted."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()
