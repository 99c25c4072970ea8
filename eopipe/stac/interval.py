"""Dates as STAC writes them: an instant, a year, month or day, or an interval with open ends."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from eopipe.errors import BadInputError, UsageError

Moments = tuple[datetime, datetime]
ALWAYS: Moments = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def interval(text: str) -> Moments:
    """First and last moment (UTC) of a date or interval; a year, month or day stands for all of it.

    >>> [str(moment) for moment in interval("2023-08/2023-09-02")]
    ['2023-08-01 00:00:00+00:00', '2023-09-02 23:59:59.999999+00:00']
    """
    start, slash, end = text.partition("/")
    try:
        first, last = _edge(start, 0), _edge(end if slash else start, 1)
    except ValueError as error:
        raise UsageError(f"{text!r} is no date or interval; write 2023-08-01 or 2023-08-01/2023-09-30") from error
    if last < first:
        raise UsageError(f"the interval {text} ends before it starts")
    return first, last


def _edge(text: str, side: int) -> datetime:
    if text in ("", ".."):
        return ALWAYS[side]
    if not re.fullmatch(r"\d{4}(-\d\d){0,2}", text):
        return _moment(text)
    begin = _moment(text + "-01" * (2 - text.count("-")))
    return _next(begin, text.count("-")) - timedelta(microseconds=1) if side else begin


def _next(begin: datetime, dashes: int) -> datetime:
    """Where the next year, month or day begins."""
    if dashes == 0:
        return begin.replace(year=begin.year + 1)
    if dashes == 1:
        return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return begin + timedelta(days=1)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def middle(item: dict[str, Any]) -> datetime:
    """The moment (UTC) when a scene was taken, or the middle of its time. Raises BadInputError when it tells none."""
    told = item["properties"]
    try:
        first, last = (_moment(str(told.get("datetime") or told[key])) for key in ("start_datetime", "end_datetime"))
    except (KeyError, ValueError) as error:
        raise BadInputError(f"scene {item['id']} has no proper datetime: {told.get('datetime')}") from error
    return first + (last - first) / 2


def is_within(item: dict[str, Any], text: str | None) -> bool:
    """Whether a scene was taken in an interval, at least for a part of its time."""
    if not text:
        return True
    told = item["properties"]
    first, last = (told.get("datetime") or told.get(key) for key in ("start_datetime", "end_datetime"))
    if not (first and last):
        return False
    start, end = interval(text)
    try:
        return _moment(str(first)) <= end and _moment(str(last)) >= start
    except ValueError as error:
        raise BadInputError(f"scene {item['id']} has no proper datetime: {first}") from error
