"""Typed codecs: a value that `append` takes comes back equal; otherwise `append` refuses it."""

import enum
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, assert_type
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

import falaj
from falaj.codecs import JSON
from falaj.errors import DecodeFailed, InvalidArgument


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Address:
    street: str
    number: int | None = None


@dataclass
class Order:
    id: int
    who: Address
    also: list[Address] = field(default_factory=list)
    price: float = 0.0
    exact: Decimal | None = None
    at: datetime | None = None
    day: date = date(2026, 11, 27)
    clock: time = time(8, 30)
    span: timedelta = timedelta(seconds=1.5)
    colour: Colour = Colour.RED
    pair: tuple[int, str] = (1, "a")
    tags: set[str] = field(default_factory=set)
    notes: dict[str, list[int | None]] = field(default_factory=dict)
    raw: bytes = b"\xff"
    uuid: UUID | None = None
    kind: Literal["new", "old"] = "new"
    anything: Any = None
    parent: "Order | None" = None


ORDERS = [
    Order(1, Address("High Street")),
    Order(
        2,
        Address("Low Street", 5),
        also=[Address("x"), Address("y", 0)],
        price=5,
        exact=Decimal("1.10"),
        at=datetime(2026, 11, 27, 8, 30, 0, 123456, tzinfo=ZoneInfo("Europe/Berlin")),
        colour=Colour.BLUE,
        tags={"a", "b"},
        notes={"n": [1, None]},
        kind="old",
        uuid=UUID(int=5),
        anything={"deep": [1, 2.5, {"x": None}]},
        parent=Order(1, Address("inner"), at=datetime(2026, 1, 1)),  # noqa: DTZ001  # as it is given
    ),
]


@pytest.mark.parametrize("order", ORDERS)
def test_an_instance_of_a_dataclass_comes_back_equal(store: falaj.Store, order: Order) -> None:
    orders = store.topic("orders", codec=Order)
    orders.append(order)
    assert orders[0].value == order
    assert type(orders[0].value) is Order
    assert_type(orders, falaj.Topic[Order])


def test_the_topic_is_a_topic_of_json_that_any_reader_reads(store: falaj.Store) -> None:
    addresses = store.topic("addresses", codec=Address)
    addresses.append(Address("High Street", 5))
    assert addresses.codec == "json"
    assert store.topic("addresses")[0].value == {"street": "High Street", "number": 5}
    store.topic("addresses").append({"street": "by hand", "unknown": 1})
    assert addresses[1].value == Address("by hand")  # a default replaces what is missing


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"street": "x"}, "a topic of Address takes Address, not dict"),
        (Address(5), "the field street cannot be 5"),  # type: ignore[arg-type]
        (Address("x", "5"), "the field number cannot be '5'"),  # type: ignore[arg-type]
        (Address("x", True), "the field number cannot be True"),
        (None, "a topic of Address takes Address, not NoneType"),
    ],
)
def test_what_is_no_instance_or_breaks_its_annotations_is_refused(
    store: falaj.Store, value: Any, said: str
) -> None:
    topic = store.topic("addresses", codec=Address)
    with pytest.raises(TypeError, match=said):
        topic.append(value)
    assert len(topic) == 0


@dataclass
class Late:
    at: datetime


def test_a_time_that_an_hour_of_the_clock_repeats_is_refused(store: falaj.Store) -> None:
    topic = store.topic("late", codec=Late)
    repeated = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    with pytest.raises(InvalidArgument, match="in UTC"):
        topic.append(Late(repeated))
    topic.append(Late(repeated.astimezone(UTC)))
    with pytest.raises(ValueError, match="JSON has no NaN"):
        store.topic("nan", codec=Order).append(Order(1, Address("x"), price=float("nan")))


class Row(NamedTuple):
    a: int


@dataclass
class OfRow:
    row: Row


@dataclass
class OfObject:
    thing: OrderedDict[str, int]


@dataclass
class Either:
    which: "str | datetime"


@dataclass
class Numbered:
    by: dict[int, str]


@dataclass
class Computed:
    a: int
    twice: int = field(init=False)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OfRow, "OfRow.row is Row, which JSON does not give back"),
        (OfObject, "OfObject.thing is .*OrderedDict"),
        (Either, "Either.which is str | datetime.*two are the same in JSON"),
        (Numbered, "Numbered.by has keys of int"),
        (Computed, "Computed.twice has init=False"),
    ],
)
def test_a_class_that_json_cannot_give_back_is_refused_when_the_topic_is_opened(
    store: falaj.Store, kind: type, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        store.topic("odd", codec=kind)
    assert list(store.topics) == []


def test_a_class_that_is_no_model_is_refused(store: falaj.Store) -> None:
    with pytest.raises(TypeError, match="the class Row cannot be a codec: give a dataclass"):
        store.topic("rows", codec=Row)


def test_a_value_of_another_shape_names_the_record(store: falaj.Store) -> None:
    plain = store.topic("addresses", codec="json")
    plain.extend([{"street": "x"}, {"number": 5}, [1], {"street": "x", "number": "5"}])
    topic = store.topic("addresses", codec=Address)
    assert topic[0].value == Address("x")
    for offset in (1, 2, 3):
        with pytest.raises(DecodeFailed, match=f"record {offset} of topic") as told:
            _ = topic[offset].value
        assert (told.value.topic, told.value.offset) == ("addresses", offset)


def test_a_model_of_pydantic_comes_back_equal_or_is_refused(store: falaj.Store) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Item(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        name: str = pydantic.Field(alias="Name")
        at: datetime
        parts: list[tuple[int, Decimal]]

    class Lossy(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        kept: int
        secret: int = pydantic.Field(default=0, exclude=True)

    item = Item(Name="x", at=datetime(2026, 11, 27, tzinfo=UTC), parts=[(1, Decimal("1.10"))])
    topic = store.topic("items", codec=Item)
    topic.append(item)
    assert topic[0].value == item
    with pytest.raises(TypeError, match="a topic of Item takes Item, not dict"):
        topic.append({"Name": "x"})  # type: ignore[arg-type]
    store.topic("items").append({"Name": 5})
    with pytest.raises(DecodeFailed, match="record 1 of topic"):
        _ = topic[1].value
    lossy = store.topic("lossy", codec=Lossy)
    lossy.append(Lossy(kept=1))
    with pytest.raises(InvalidArgument, match="would not give this Lossy back"):
        lossy.append(Lossy(kept=1, secret=5))
    assert len(lossy) == 1


def test_a_struct_of_msgspec_comes_back_equal_or_is_refused(store: falaj.Store) -> None:
    msgspec = pytest.importorskip("msgspec")
    kind = msgspec.defstruct("Item", [("name", str), ("pair", tuple[int, str]), ("any", Any, None)])
    topic: Any = store.topic("items", codec=kind)
    topic.append(kind("x", (1, "a")))
    assert topic[0].value == kind("x", (1, "a"))
    with pytest.raises(InvalidArgument, match="would not give this Item back"):
        topic.append(kind("x", (1, "a"), any=(1, 2)))
    assert store.topic("items")[0].value["pair"] == [1, "a"]
    assert len(topic) == 1


def test_no_library_of_models_is_imported_for_a_dataclass(path: Path) -> None:
    program = f"""
import sys, dataclasses, falaj
@dataclasses.dataclass
class Order:
    id: int
falaj.open({str(path)!r}).topic("orders", codec=Order).append(Order(1))
print([name for name in ("pydantic", "msgspec", "attrs") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_json_takes_a_function_for_what_it_does_not_have(store: falaj.Store) -> None:
    topic = store.topic("days", codec=JSON(default=str))
    topic.append({"day": date(2026, 11, 27), "many": [Decimal("1.5")]})
    assert topic[0].value == {"day": "2026-11-27", "many": ["1.5"]}
    assert store.topic("days")[0].value == topic[0].value
    with pytest.raises(TypeError, match="default is a function of a value, not str"):
        JSON(default="str")  # type: ignore[arg-type]
