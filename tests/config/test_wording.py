"""One sentence per fault: where, what was expected, what came, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator

from cutlayer.config import FrozenModel, OptimizerConfig, near_miss, validated
from cutlayer.errors import ConfigError


class Wheel(FrozenModel):
    """Inner."""

    size: int = Field(default=20, ge=10, le=30)
    kind: Literal["spoke", "disc"] = "spoke"


class Lamp(FrozenModel):
    """Has no kinds."""

    watt: float
    manual: Path = Path("manual.txt")


class Pole(FrozenModel):
    """One of several with names of their own."""

    width: int = 10


class Bike(FrozenModel):
    """Outer."""

    name: str
    front: Wheel = Wheel()
    wheels: Mapping[str, Wheel] = Field(default_factory=dict)
    spares: tuple[Wheel, ...] = ()
    bags: Mapping[str, Any] | None = None
    lamp: Lamp | None = None
    poles: Mapping[str, Pole] = Field(default_factory=dict)
    gears: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    load: float = Field(default=1.0, gt=0, description="a child is 20 kg")
    plate: str = Field(default="AB", min_length=2, max_length=3)
    tube: Wheel | None = None
    holes: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1,), min_length=1)

    @field_validator("name")
    @classmethod
    def _spoken(cls, name: str) -> str:
        if name == "bad":
            raise ValueError("a name one can say; think again")
        return name


KNOWN = "bags, front, gears, holes, lamp, load, name, plate, poles, spares, tube, wheels"


def told(raw: object, where: str = "bike") -> list[str]:
    with pytest.raises(ConfigError) as failure:
        validated(Bike, raw, where)
    return str(failure.value).splitlines()


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({}, "bike.name: missing"),
        (None, "bike.name: missing"),
        ({"name": "x", "fornt": {}}, "bike.fornt: unknown key; did you mean 'front'?"),
        ({"name": "x", "front": {"sise": 1}}, "bike.front.sise: unknown key; did you mean 'size'?"),
        ({"name": "x", "wheels": {"left": {"sise": 1}}}, "bike.wheels.left.sise: unknown key; did you mean 'size'?"),
        ({"name": "x", "tube": {"sise": 1}}, "bike.tube.sise: unknown key; did you mean 'size'?"),
        ({"name": "x", "spares": [{}, {"sise": 1}]}, "bike.spares.1.sise: unknown key; did you mean 'size'?"),
        ({"name": "x", "front": {"xyz": 1}}, "bike.front.xyz: unknown key; known: kind, size"),
        ({"name": "x", "front": {"size": 9}}, "bike.front.size: expected greater than or equal to 10, got 9"),
        ({"name": "x", "front": {"size": "big"}}, "bike.front.size: expected a whole number, got 'big'"),
        (
            {"name": "x", "front": {"kind": "disk"}},
            "bike.front.kind: expected 'spoke' or 'disc', got 'disk'; did you mean 'disc'?",
        ),
        ({"name": "x", "front": 5}, "bike.front: expected keys and values, got 5; such as {size: 20, kind: spoke}"),
        ({"name": "x", "front": "disc"}, "bike.front: expected keys and values, got 'disc'; write {kind: disc}"),
        ({"name": "x", "wheels": ["left"]}, "bike.wheels: expected keys and values, got ['left']; write {left: {}}"),
        ({"name": "x", "bags": "red"}, "bike.bags: expected keys and values, got 'red'; write {kind: red}"),
        ({"name": "x", "bags": 5}, "bike.bags: expected keys and values, got 5; write {key: value}"),
        ({"name": "x", "lamp": "on"}, "bike.lamp: expected keys and values, got 'on'; its keys are manual, watt"),
        ({"name": "x", "lamp": 5}, "bike.lamp: expected keys and values, got 5; such as {watt: ...}"),
        ({"name": "x", "watt": 5}, "bike.watt: unknown key; did you mean 'lamp.watt'?"),
        ({"name": "x", "lamp": {"watt": 3, "plate": "A"}}, "bike.lamp.plate: unknown key; did you mean 'plate'?"),
        ({"name": "x", "width": 5}, "bike.width: unknown key; did you mean 'poles.NAME.width'?"),
        ({"name": "x", "spares": {}}, "bike.spares: expected a list, got keys and values"),
        ({"name": "x", "spares": None}, "bike.spares: expected a list, got nothing"),
        ({"name": "x", "gears": 0}, "bike.gears: expected 'auto' or greater than or equal to 1, got 0"),
        ({"name": "x", "gears": "many"}, "bike.gears: expected 'auto' or a whole number, got 'many'"),
        ({"name": "x", "gears": [1]}, "bike.gears: expected 'auto' or a whole number, got [1]"),
        ({"name": "x", "holes": []}, "bike.holes: expected a list of 1 or more, got []"),
        ({"name": "x", "holes": [0]}, "bike.holes.0: expected greater than or equal to 1, got 0"),
        ({"name": "x", "load": 0}, "bike.load: expected greater than 0, got 0; a child is 20 kg"),
        ({"name": "x", "plate": "A"}, "bike.plate: expected at least 2 character(s), got 'A'"),
        ({"name": "x", "plate": "ABCD"}, "bike.plate: expected at most 3 character(s), got 'ABCD'"),
        ({"name": 5}, "bike.name: expected text, got 5; put it in quotes"),
        (
            {"name": "x", "lamp": {"watt": 1, "manual": 5}},
            "bike.lamp.manual: expected a path as text, got 5; put it in quotes",
        ),
        ({"name": "bad"}, "bike.name: expected a name one can say, got 'bad'; think again"),
        ({"name": ["x" * 99]}, "bike.name: expected text, got a list"),
        ({"name": "x", 5: 1}, "bike.5: expected a name as text, got 5; put it in quotes"),
        (
            {"name": "x", "a.b\n": 1},
            f"bike.'a.b\\n': unknown key; known: {KNOWN}",
        ),
        ([1], "bike: expected keys and values, got [1]; such as {name: ..., gears: auto}"),
    ],
)
def test_each_fault_is_one_sentence(raw, sentence):
    assert told(raw) == [sentence]


def test_unknown_keys_come_first_and_a_whole_is_not_blamed_for_its_part():
    assert told({"front": {"size": 1}, "forks": 1}) == [
        f"bike.forks: unknown key; known: {KNOWN}",
        "bike.name: missing",
        "bike.front.size: expected greater than or equal to 10, got 1",
    ]


def test_without_a_place_nothing_stands_before_the_sentence():
    assert told([1], "") == ["expected keys and values, got [1]; such as {name: ..., gears: auto}"]
    assert told({}, "") == ["name: missing"]


def test_a_section_left_empty_is_one_without_keys():
    bike = validated(Bike, {"name": "x", "front": None, "wheels": None, "tube": None}, "")
    assert bike == Bike(name="x")
    assert bike.tube is None


def test_near_misses():
    assert near_miss("marvel", ["marvell", "max_norm"]) == "; did you mean 'marvell'?"
    assert near_miss("zzz", ["b", "a"]) == "; known: a, b"
    assert near_miss("zzz", []) == ""


def test_a_key_of_another_program_names_the_one_here() -> None:
    with pytest.raises(ConfigError, match=r"^learning_rate: unknown key; did you mean 'lr'\?$"):
        validated(OptimizerConfig, {"learning_rate": 0.1}, "")
