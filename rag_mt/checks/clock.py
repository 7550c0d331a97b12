"""Times of day: the same one on a clock of 12 or 24 hours, in digits or in words."""

from __future__ import annotations

import re

from rag_mt.checks.number_sides import Number, Side

HOURS, MINUTES = 12, 60
HALF, QUARTERS = 30, (15, 45)

_FULL_HOUR = re.compile(r"(?:[01]?\d|2[0-4])[:.]00")
_TIME = re.compile(r"([01]?\d|2[0-4])[:.]([0-5]\d)")


def is_same_time(number: Number, own: Side, other: Side) -> bool:
    """Whether the other side has that time of day otherwise: `7.30 pm` and `19:30`, `18:00` and `18`, `10:30` and
    `halb elf`, `8:40` and `zwanzig vor neun`."""
    return (
        _by_clock(number, other)
        or _as_full_hour(number, other)
        or _in_words(number, other)
        or _as_half_hour(number, own, other)
    )


def _by_clock(number: Number, other: Side) -> bool:
    """An hour after noon of a 12-hour clock, and the same one of a 24-hour clock."""
    hour, *minutes = number.parts
    return any(_twelve_later(hour, minutes, n) for n in other.numbers) or any(
        _twelve_later(n.parts[0], n.parts[1:], number) for n in other.numbers
    )


def _twelve_later(hour: str, minutes: list[str], late: Number) -> bool:
    """Whether `late` is that time of the afternoon on a 24-hour clock; full hours may have no minutes."""
    parts = late.parts
    if len(hour) > 2 or int(hour) >= HOURS or len(minutes) > 1 or len(parts) > 2:
        return False
    return parts[0] == str(int(hour) + HOURS) and (minutes or ["0"]) == (parts[1:] or ["0"])


def _as_full_hour(number: Number, other: Side) -> bool:
    """`18:00` and `18`, both ways."""
    hour, *minutes = number.parts
    if _FULL_HOUR.fullmatch(number.text):
        return any(n.parts == [hour] for n in other.numbers)
    return not minutes and any(n.parts == [hour, "0"] for n in other.numbers if _FULL_HOUR.fullmatch(n.text))


def _in_words(number: Number, other: Side) -> bool:
    """A time with minutes by its words: the hour or, as in `half eight` of some languages, the next one."""
    time = _TIME.fullmatch(number.text)
    if time is None:
        return False
    hour, minute = int(time[1]), int(time[2])
    this, following = (any(_has(n, other) for n in _hours(h)) for h in (hour, hour + 1))
    if minute == 0:
        return this
    if minute == HALF and (this or following) and other.has_word(other.words.half):
        return True
    if minute in QUARTERS and (this or following) and other.has_word(other.words.quarter):
        return True
    return (this and other.says(str(minute))) or (following and other.says(str(MINUTES - minute)))


def _has(hour: int, side: Side) -> bool:
    """Whether a text has a full hour, in digits or in words."""
    return side.says(str(hour)) or any(number.text == str(hour) for number in side.numbers)


def _hours(hour: int) -> set[int]:
    """An hour of either clock, as both have it."""
    return {hour % HOURS or HOURS, hour % (2 * HOURS)} - {0}


def _as_half_hour(number: Number, own: Side, other: Side) -> bool:
    """The `8` of `halb 8` where the other side has `7:30` or `19:30`."""
    if not number.text.isdecimal() or len(number.digits) > 2 or not own.has_word(own.words.half):
        return False
    hours = _hours(int(number.digits)) | _hours(int(number.digits) - 1)
    return any(
        n.parts[1:] == [str(HALF)] and int(n.parts[0]) % HOURS in {h % HOURS for h in hours} for n in other.numbers
    )
