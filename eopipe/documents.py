"""Documents that others or earlier stages wrote: each is checked once, when it is read, by a pydantic model.

A model names the fields that eopipe reads, with their types and limits; other fields are free, except that all of a
document must be JSON: finite numbers, and text that can be written as UTF-8.
"""

import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from eopipe.errors import BadInputError
from eopipe.text_files import read_json

M = TypeVar("M", bound=BaseModel)
# Levels of lists and objects: geometries have four, and metadata that providers nest a few more.
MAX_DEPTH = 60
# Sentences of one message, and letters of a wrong value in it.
MAX_SENTENCES, MAX_VALUE = 3, 60
# Whole numbers of a document are below this, so that they fit into 64 bits.
MAX_WHOLE = 2**62
OPEN = ConfigDict(extra="allow", strict=True)
EXPECTED = {
    "missing": "it is needed",
    "extra_forbidden": "no such field is known",
    "string_type": "write text",
    "string_too_short": "write some text",
    "string_unicode": "write Unicode text",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "list_type": "write a list",
    "dict_type": "write an object",
    "model_type": "write an object",
    "model_attributes_type": "write an object",
}


def number(value: Any) -> Any:
    """A number; booleans and texts are none."""
    # A whole number may be too large for a float, in which case `isfinite` raises another error.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ValueError("write a number")
    return value


def whole(value: Any) -> Any:
    """A whole number, also as 10980.0, as some providers write it."""
    if number(value) != int(value):
        raise ValueError("write a whole number")
    return value


def invertible(value: list[Any]) -> list[Any]:
    """The numbers of an affine transform that has an inverse."""
    if len(value) not in (6, 9):
        raise ValueError("write the six or nine numbers of an affine transform")
    a, b, _, d, e, _ = value[:6]
    if not math.isfinite(a * e - b * d) or a * e == b * d:
        raise ValueError("write the numbers of an affine transform that can be inverted")
    return value


def time_text(value: str) -> str:
    """A time as in ISO 8601, in the years that also have it in UTC."""
    try:
        time = datetime.fromisoformat(value)
        # Without an offset it is UTC.
        (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError("write a time as in ISO 8601, such as 2018-07-01T09:20:31Z") from None
    return value


Number = Annotated[Any, BeforeValidator(number)]
Share = Annotated[Number, Field(ge=0, le=1)]
NotNegative = Annotated[Number, Field(ge=0)]
# The two ends of an interval.
Ends = Annotated[list[Number], Field(min_length=2, max_length=2)]
# Whole numbers and numbers of documents of eopipe itself, which always writes them as such.
Count = Annotated[int, Field(ge=0, lt=MAX_WHOLE)]
PositiveCount = Annotated[int, Field(ge=1, lt=MAX_WHOLE)]
Text = Annotated[str, Field(min_length=1)]
Time = Annotated[str, AfterValidator(time_text)]


def read_document(path: Path, kind: Any, noun: str, *typed: str) -> Any:
    """The content of a JSON file, unchanged. Raises BadInputError with the file and the fields that are wrong.

    `typed` are long fields that have a type for every entry inside, which is enough to be JSON.
    """
    return checked(kind, read_json(path), str(path), noun, *typed)


def read_model(path: Path, kind: type[M], noun: str, *typed: str) -> M:
    """The content of a JSON file as a model. Raises BadInputError as `read_document` does."""
    return kind.model_validate(read_document(path, kind, noun, *typed))


def checked(kind: Any, value: Any, label: str, noun: str, *typed: str) -> Any:
    """A value that is of a kind (a model, or a type of pydantic), unchanged. Raises BadInputError for any other."""
    if sentences := mistakes(kind, value, *typed):
        raise BadInputError(f"{label} is not {noun}: {'; '.join(sentences)}")
    return value


def mistakes(kind: Any, value: Any, *typed: str) -> list[str]:
    """What of a value is not as in a kind of document, each with its field; empty for one of the kind."""
    free = {key: entry for key, entry in value.items() if key not in typed} if isinstance(value, dict) else value
    return _few(list(_not_json(free))) or typed_mistakes(kind, value)


def typed_mistakes(kind: Any, value: Any) -> list[str]:
    """The same of a value whose model has a type for every entry, so that all of it is JSON if it is of the kind."""
    try:
        _adapter(kind).validate_python(value)
    except ValidationError as error:
        return _few(list(dict.fromkeys(_sentence(row) for row in error.errors(include_url=False))))
    return []


def _few(sentences: list[str]) -> list[str]:
    more = len(sentences) - MAX_SENTENCES
    return sentences[:MAX_SENTENCES] + ([f"and {more} more"] if more > 0 else [])


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _not_json(value: Any) -> Iterator[str]:
    """Numbers and texts that JSON does not have, though Python reads and writes them."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while pending:
        path, entry = pending.pop()
        if len(path) > MAX_DEPTH:
            yield f"{_name(path[:3])} is nested in more than {MAX_DEPTH} levels"
            return
        if isinstance(entry, dict):
            for key in entry:
                if not _is_unicode(key):
                    yield f"{_name(path)} has the key {key!r}: it is not Unicode text"
            pending += [((*path, key), inner) for key, inner in entry.items()]
        elif isinstance(entry, list):
            pending += [((*path, number), inner) for number, inner in enumerate(entry)]
        elif sentence := _not_json_value(entry):
            yield f"{_name(path)} {sentence}"


def _not_json_value(entry: Any) -> str:
    """Why JSON does not have a text, number or other value; empty where it does."""
    if isinstance(entry, str):
        return "" if _is_unicode(entry) else f"is {entry[:MAX_VALUE]!r}: it is not Unicode text"
    if isinstance(entry, float):
        text = f"is {entry}, which JSON does not have; write null, or the text {str(entry)!r}"
        return "" if math.isfinite(entry) else text
    if isinstance(entry, int):
        return "is too large a number" if abs(entry) >= 10**300 else ""
    return "" if entry is None else f"is of the type {type(entry).__name__}, which JSON does not have"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sentence(error: Any) -> str:
    # The names that pydantic gives to the alternatives of a field are not part of its path.
    path = [part for part in error["loc"] if not str(part).startswith(("function-", "list[", "constrained-"))]
    if error["type"] == "missing":
        return f"{_name(path)} is missing"
    value = repr(error["input"])
    excerpt = value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}…"
    # An address may have a signature.
    excerpt = "an address" if "://" in value else excerpt
    message = str(error.get("ctx", {}).get("error", "")) or EXPECTED.get(error["type"]) or error["msg"].lower()
    return f"{_name(path)} is {excerpt}: {message}"


def _name(path: Any) -> str:
    return ".".join(str(part).encode("utf-8", "replace").decode() for part in path) or "it"
