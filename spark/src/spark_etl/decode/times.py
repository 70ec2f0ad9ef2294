"""Texts as times and dates: the forms that Spark's cast reads, except names of zones.

Spark reads more than RFC 3339: `2026-01`, `2026-1-3 4:5:6`, leading spaces, no zone (UTC). Digits after the sixth of a
second are cut. A zone is Z, UTC, GMT or an offset: the name CST is that of three zones.

A part of what runs on executors, which may have no more than Python and pyarrow: it imports nothing of ours.
"""

import re

SECOND, DAY = 1_000_000, 86_400_000_000
MICROSECONDS_MAX = (1 << 63) - 1
OFFSET_SECONDS_MAX = 18 * 3600
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_BLANK = "".join(map(chr, range(33))) + "\x7f"  # what Spark trims
_TIME = re.compile(
    r"\+?(\d{4,6})-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^\d.].*)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_ZONE = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{1,2})(?::(\d\d))?|(\d\d)(\d\d)?)?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?", re.ASCII)


def microseconds(text: str) -> int | None:
    """Return the microseconds of a time since 1970, negative before; None if a text is no time with a date."""
    match = _TIME.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    days = _days(int(year), int(month), int(day or 1))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    offset = _offset(zone) if zone else 0
    if days is None or offset is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    found = days * DAY + (hours * 3600 + minutes * 60 + seconds - offset) * SECOND
    found += int((fraction or "")[:6].ljust(6, "0"))
    return found if -MICROSECONDS_MAX <= found <= MICROSECONDS_MAX else None


def days(text: str) -> int | None:
    """Return the days of a date (RFC 3339: `2026-01-31`) since 1970; None if a text is none."""
    match = _DATE.fullmatch(text)
    return _days(*map(int, match.groups())) if match is not None else None


def is_clock(text: str) -> bool:
    """Return whether a text is a time of day of RFC 3339; its zone may be absent."""
    return _CLOCK.fullmatch(text) is not None


def _offset(zone: str) -> int | None:
    """Return the seconds that a zone is ahead of UTC; None if it is none."""
    zone = zone.strip(_BLANK)
    if zone in ("Z", "UTC", "GMT", "UT"):
        return 0
    match = _ZONE.fullmatch(zone)
    if match is None:
        return None
    sign, hours, minutes, seconds, *joined = match.groups()
    minutes, seconds = minutes or joined[0] or 0, seconds or joined[1] or 0
    found = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    if int(minutes) > 59 or int(seconds) > 59 or found > OFFSET_SECONDS_MAX:
        return None
    return -found if sign == "-" else found


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970-01-01 to a date of the Gregorian calendar; None if there is no such date."""
    if not (1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]):
        return None
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    shifted = year - (month <= 2)  # years that begin in March end with the leap day
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719_468
