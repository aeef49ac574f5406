"""Error messages for files: every fault of a section becomes one sentence about one key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_MAX_VALUE_LENGTH = 80
_KEY = "[key]"
_BRANCH = "constrained-"
"""Start of pydantic's names of the branches of a union of constrained types, which also come after keys and values."""
_RENAMED = {"learning_rate": "lr"}
"""Keys of other programs, and their names here."""
_ANY = "NAME"
"""Placeholder in a path for a name that a user chooses, such as that of a party."""
_NEARER = 0.8
"""Similarity from which a key of the same section is meant, and not one of the same name in another section."""
_MAX_DEPTH = 4
_EXAMPLE_KEYS = 2
_FEW = 2
"""Paths of which the first is named; of more none is clear."""
_PLAIN = re.compile(r"[\w-][\w .-]*")
_KEYS = "keys and values"
_WANTED = {
    "model_type": _KEYS,
    "model_attributes_type": _KEYS,
    "dict_type": _KEYS,
    "mapping_type": _KEYS,
    "tuple_type": "a list",
    "list_type": "a list",
    "string_type": "text",
    "path_type": "a path as text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
_MAX_SENTENCES = 20


def sentences(section: type[BaseModel], raw: object, where: str, faults: Sequence[Any]) -> list[str]:
    """One sentence per path that is wrong, unknown keys first.

    Args:
        section: Pydantic model that read `raw`.
        raw: Value of the section in the file.
        where: Dotted path of `raw` in the file.
        faults: Errors that pydantic reported.
    """
    by_path: dict[tuple[int | str, ...], list[Any]] = {}
    for fault in sorted(faults, key=lambda fault: fault["type"] not in ("extra_forbidden", "invalid_key")):
        path = fault["loc"] if fault["type"] == "missing" else _path_in(raw, fault["loc"])
        by_path.setdefault(path, []).append(fault)
    outer = {path[:depth] for path in by_path for depth in range(1, len(path))}  # wrong for what is wrong inside
    wrong = [(path, path_faults) for path, path_faults in by_path.items() if path not in outer]
    first = [_sentence(section, raw, where, path, path_faults) for path, path_faults in wrong[:_MAX_SENTENCES]]
    return first + [f"and {len(wrong) - len(first):,} more"] * (len(wrong) > len(first))


def near_miss(word: str, known: list[str]) -> str:
    """Return `; did you mean ...?`, or the list of known names.

    >>> near_miss("marvel", ["marvell", "max_norm"])
    "; did you mean 'marvell'?"
    """
    return did_you_mean(word, known) or (f"; known: {', '.join(sorted(known))}" if known else "")


def did_you_mean(word: str, known: list[str]) -> str:
    """Return `; did you mean ...?`, or nothing if no known name is near.

    >>> did_you_mean("loan.csv", ["loans.csv"]), did_you_mean("x", ["loans.csv"])
    ("; did you mean 'loans.csv'?", '')
    """
    # Nearly always it is one of them: callers word the error before they look, and to compare takes a millisecond.
    close = [word] if word in known else difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _path_in(raw: object, path: Sequence[int | str]) -> tuple[int | str, ...]:
    """The path without the union branches that pydantic adds: no path continues in a value without keys."""
    known_path: list[int | str] = []
    for part in path:
        if part != _KEY and not isinstance(raw, Mapping) and not (isinstance(raw, list) and isinstance(part, int)):
            break
        if str(part).startswith(_BRANCH) and isinstance(raw, Mapping) and part not in raw:
            break
        known_path.append(part)
        raw = _inside(raw, part)
    return tuple(known_path)


def _sentence(
    section: type[BaseModel], raw: object, where: str, path: tuple[int | str, ...], faults: Sequence[Any]
) -> str:
    of_key = bool(path) and path[-1] == _KEY
    path = path[:-1] if of_key else path
    keys = (str(key) if _PLAIN.fullmatch(str(key)) else repr(key) for key in path)
    name = ".".join(filter(None, (where, *keys)))
    colon = f"{name}: " if name else ""
    kinds = {fault["type"] for fault in faults}
    if "extra_forbidden" in kinds:
        key = _RENAMED.get(str(path[-1]), str(path[-1]))
        known = _keys_at(section, path[:-1])
        near = difflib.get_close_matches(key, known, n=1, cutoff=_NEARER)
        elsewhere = "" if near else _elsewhere(section, path[:-1], key)
        return f"{colon}unknown key{f'; did you mean {elsewhere!r}?' if elsewhere else near_miss(key, known)}"
    if "missing" in kinds:
        return f"{colon}missing"
    if "invalid_key" in kinds or (of_key and "string_type" in kinds):
        return f"{colon}expected a name as text, got {path[-1]!r}; put it in quotes"
    if of_key and "literal_error" in kinds:
        return f"{colon}unknown key{near_miss(str(path[-1]), _choices(faults))}"
    got = path[-1] if of_key else _value_at(raw, path)
    advice = _advice(section, path)
    of_words = isinstance(got, str) and "literal_error" in kinds  # it is one of these that is meant
    if not advice and not of_words and any(_WANTED.get(kind) == _KEYS for kind in kinds):
        advice = _form(section, path, got)
    return colon + _expected(faults, got, advice)


def _expected(faults: Sequence[Any], got: object, advice: str) -> str:
    """The sentence about a value: what the branches of a union expect, and the value."""
    explained = [fault["msg"].removeprefix("Value error, ") for fault in faults if fault["type"] == "value_error"]
    if explained:
        wanted, semicolon, remedy = explained[0].partition(";")
        value = "" if ", got " in wanted or _shown(got) is None else f", got {_shown(got)}"
        return f"expected {wanted}{value}{semicolon}{remedy}"
    wanted = " or ".join(dict.fromkeys(map(_wanted, faults)))
    close = difflib.get_close_matches(got, _choices(faults), n=1) if isinstance(got, str) else ()
    if close:
        advice = f"did you mean {close[0]!r}?"
    elif {fault["type"] for fault in faults} <= {"string_type", "path_type"} and isinstance(got, int | float):
        advice = "put it in quotes"
    return f"expected {wanted}, got {_shown(got) or _kind(got)}" + (f"; {advice}" if advice else "")


def _wanted(fault: Any) -> str:
    context = fault.get("ctx", {})
    match fault["type"]:
        case "string_pattern_mismatch":
            return f"text of the form {context['pattern']}"
        case "string_too_short":
            return f"at least {context['min_length']} character(s)"
        case "string_too_long":
            return f"at most {context['max_length']} character(s)"
        case "too_short":
            return f"a list of {context['min_length']} or more"
        case kind:
            return _WANTED.get(kind, str(fault["msg"]).removeprefix("Input should be "))


def _choices(faults: Sequence[Any]) -> list[str]:
    """The allowed words, if the value must be one of certain words."""
    expected = (fault["ctx"]["expected"] for fault in faults if fault["type"] == "literal_error")
    return [word for listed in expected for word in re.findall(r"'([^']*)'", listed)]


def _shown(value: object) -> str | None:
    """The value as in the file, if it is short."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return None
    text = repr(list(value)) if isinstance(value, list | tuple) else repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else None


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return _KEYS
    return "a list" if isinstance(value, list | tuple) else type(value).__name__


def _value_at(raw: object, path: Sequence[int | str]) -> object:
    for part in path:
        raw = _inside(raw, part)
    return raw


def _inside(raw: object, part: int | str) -> object:
    if isinstance(raw, Mapping):
        return raw.get(part)
    return raw[part] if isinstance(raw, list) and isinstance(part, int) and part < len(raw) else raw


def _advice(section: type[BaseModel], path: Sequence[int | str]) -> str:
    """The description of the field at `path`."""
    holder = _section_at(section, path[:-1])
    field = holder.model_fields.get(str(path[-1])) if holder and path else None
    return (field.description or "") if field else ""


def _form(section: type[BaseModel], path: Sequence[int | str], got: object) -> str:
    """How keys and values are written where something else stands; empty where none belong."""
    annotation = _annotation_at(section, path)
    named_freely = any(get_origin(kind) is Mapping for kind in (annotation, *get_args(annotation)))
    holder = None if named_freely else _section_at(section, path)
    inner = _step(annotation, _ANY)
    if holder is None and not named_freely:
        return ""
    names = got if isinstance(got, list) else [got]
    named = bool(names) and all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in names)
    if named and holder is None and inner is not Any:
        return f"write {{{', '.join(f'{name}: {{}}' for name in names)}}}"
    if named and isinstance(got, str) and (holder is None or "kind" in holder.model_fields):
        return f"write {{kind: {got}}}"
    if holder is None:
        return "write {key: value}"
    shown = {key: _plain_default(field) for key, field in holder.model_fields.items()}
    first = sorted((key for key in shown if shown[key]), key=lambda key: not holder.model_fields[key].is_required())
    if named or not first:
        return f"its keys are {', '.join(sorted(shown))}"
    return f"such as {{{', '.join(f'{key}: {shown[key]}' for key in first[:_EXAMPLE_KEYS])}}}"


def _plain_default(field: FieldInfo) -> str:
    """A field's default as YAML, `...` for a required field; empty if the default is none or has parts."""
    if field.is_required():
        return "..."
    default = field.get_default()
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, int | float | str) else ""


def _elsewhere(section: type[BaseModel], path: Sequence[int | str], key: str) -> str:
    """Path of a key of this name in another section, that at `path` first, then all; empty without a clear one."""
    for start in (tuple(map(str, path)), ()):
        level: list[tuple[tuple[str, ...], Any]] = [(start, _annotation_at(section, start))]
        for _ in range(_MAX_DEPTH):
            level = [(inner, kind) for where, outer in level for inner, kind in _inner(where, outer)]
            matches = [where for where, _ in level if where[-1] == key]
            if matches:
                return ".".join(matches[0]) if len(matches) <= _FEW else ""
    return ""


def _inner(where: tuple[str, ...], annotation: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and types one level further inside."""
    if get_origin(annotation) is Mapping:
        kind = get_args(annotation)[1]
        yield from (((*where, _ANY, *path[len(where) :]), inner) for path, inner in _inner(where, kind))
        return
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (((*where, key), field.annotation) for key, field in kind.model_fields.items())


def _annotation_at(section: type[BaseModel], path: Sequence[int | str]) -> Any:
    annotation: Any = section
    for part in path:
        annotation = _step(annotation, part)
    return annotation


def _keys_at(section: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Known keys of the (nested) section that `path` leads to."""
    holder = _section_at(section, path)
    return list(holder.model_fields) if holder else []


def _section_at(section: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    annotation = _annotation_at(section, path)
    kinds = (kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return next((kind for kind in kinds if issubclass(kind, BaseModel)), None)


def _step(annotation: Any, part: int | str) -> Any:
    """Type of the value under `part` in a value of this type; `None` if there can be none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return field.annotation if field else None
    arguments = get_args(annotation)
    if get_origin(annotation) is Mapping:
        return arguments[1]
    if get_origin(annotation) is tuple:
        return arguments[0]
    return next((step for kind in arguments if (step := _step(kind, part)) is not None), None)
