"""Classes with code of their own: reading gives an instance back equal, or it is refused."""

from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import Any

import pytest

import falaj
from falaj.errors import DecodeFailed, InvalidArgument


@dataclass
class Asks:
    x: int
    factor: InitVar[int]


@dataclass(init=False)
class Other:
    x: int

    def __init__(self, first: int) -> None:
        self.x = first


@dataclass
class Misnamed:
    x: "nowhere.Thing"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Asks, "Asks cannot be made of its fields x .*'factor'"),
        (Other, "Other cannot be made of its fields x .*'first'"),
        (Misnamed, "the annotations of Misnamed cannot be read .*nowhere"),
    ],
)
def test_a_class_that_cannot_be_made_of_its_fields_is_refused_when_the_topic_is_opened(
    store: falaj.Store, kind: type, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        store.topic("odd", codec=kind)
    assert list(store.topics) == []


@dataclass
class Grows:
    x: int

    def __post_init__(self) -> None:
        self.x *= 100


@dataclass(eq=False)
class GrowsAlone:
    x: int

    def __post_init__(self) -> None:
        self.x += 1


@dataclass
class Holds:
    inner: list[GrowsAlone]


@dataclass
class Sets:
    x: int

    def __setattr__(self, name: str, value: int) -> None:
        object.__setattr__(self, name, value + 1)


@dataclass
class Unlike:
    x: int

    def __eq__(self, other: object) -> bool:
        return False


class Counting(type):
    def __call__(cls, *args: Any, **fields: int) -> Any:
        return super().__call__(*args, **{name: value + 1 for name, value in fields.items()})


@dataclass
class Counted(metaclass=Counting):
    x: int


@pytest.mark.parametrize(
    "value", [Grows(1), GrowsAlone(1), Holds([GrowsAlone(1)]), Sets(1), Unlike(1), Counted(1)]
)
def test_an_instance_that_its_own_code_would_change_is_refused(
    store: falaj.Store, value: Any
) -> None:
    topic: Any = store.topic("odd", codec=type(value))
    with pytest.raises(InvalidArgument, match=f"would not give this {type(value).__name__} back"):
        topic.append(value)
    assert len(topic) == 0


@dataclass
class Valid:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclass(eq=False)
class Plain:
    x: int


@dataclass
class Both:
    valid: Valid
    plain: dict[str, tuple[Plain, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    x: int
    many: list[int] = field(default_factory=list)


class Undecorated(Valid):
    pass


def test_an_instance_that_its_own_code_leaves_alone_comes_back(store: falaj.Store) -> None:
    for value in (
        Valid(0),
        Undecorated(0),
        Both(Valid(1), {"a": (Plain(2),)}),
        Frozen(x=1, many=[2]),
    ):
        topic: Any = store.topic(type(value).__name__, codec=type(value))
        topic.append(value)
        assert repr(topic[0].value) == repr(value)
    valid = store.topic("Valid", codec=Valid)
    changed = Valid(0)
    changed.x = -1
    with pytest.raises(InvalidArgument, match="back: x is negative"):
        valid.append(changed)


@dataclass
class Chain:
    x: int
    next: "Chain | None" = None


def test_an_instance_that_holds_itself_is_refused_in_a_sentence(store: falaj.Store) -> None:
    chain = Chain(1)
    chain.next = chain
    with pytest.raises(InvalidArgument, match="this Chain holds itself, or is nested too deeply"):
        store.topic("chains", codec=Chain).append(chain)


def test_a_model_that_would_store_what_is_no_json_is_refused(store: falaj.Store) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Loose(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        model_config = {"ser_json_inf_nan": "constants"}  # noqa: RUF012  # as its documents have it
        real: float = 0.0
        any: Any = None

    topic = store.topic("loose", codec=Loose)
    deep: list[Any] = []
    for _ in range(130):
        deep = [deep]
    for value, said in ((Loose(real=float("inf")), "JSON has no inf"), (Loose(any=deep), "deep")):
        with pytest.raises(InvalidArgument, match=said):
            topic.append(value)
    topic.append(Loose(real=1e300))
    assert [record.value.real for record in topic] == [1e300]


# --- Copies --------------------------------------------------------------------------------------


@pytest.fixture
def mixed(store: falaj.Store) -> falaj.Topic[Any]:
    """A topic of JSON: the class Plain reads its first record, and no other."""
    topic = store.topic("mixed", codec="json")
    topic.extend([{"x": 1, "more": 2}, {"a": 1}, {"x": "1"}])
    return topic


def test_records_that_a_class_cannot_read_are_not_copied_to_its_topic(
    store: falaj.Store, mixed: falaj.Topic[Any]
) -> None:
    topic: Any = store.topic("plain", codec=Plain)

    def in_a_transaction() -> None:
        with store.transaction() as tx:
            tx.extend(topic, mixed)

    said = r'record 1 of topic "mixed" \(codec json\) .* "plain" \(codec json\): the class'
    for copy in (
        lambda: topic.extend(mixed[1:]),
        lambda: topic.extend(list(mixed)[1:]),
        lambda: topic.extend(record for record in list(mixed)[1:]),
        lambda: topic.extend(next(mixed.batches())),
        lambda: topic.partition(0).extend(mixed),
        lambda: store.queue("jobs", topic).put_many(list(mixed)),
        in_a_transaction,
    ):
        with pytest.raises(InvalidArgument, match=said) as refused:
            copy()
        assert isinstance(refused.value.__cause__, (TypeError, ValueError))
    assert len(topic) == 0


def test_records_that_a_class_reads_are_copied_to_its_topic_with_their_bytes(
    store: falaj.Store, mixed: falaj.Topic[Any]
) -> None:
    topic = store.topic("plain", codec=Plain)
    topic.extend([mixed[0]])
    again = store.topic("again", codec=Plain)
    again.extend(topic)
    assert (again[0].value.x, again[0].to_bytes()) == (1, b'{"x":1,"more":2}')
    mixed.extend(again)
    assert mixed[-1].value == {"x": 1, "more": 2}


def test_what_a_program_without_the_class_appended_is_an_error_of_its_record(
    store: falaj.Store,
) -> None:
    store.topic("chains", codec=Chain)
    store.topic("chains", codec="json").append({"y": 1})
    with pytest.raises(DecodeFailed, match='record 0 of topic "chains"'):
        _ = store.topic("chains", codec=Chain)[0].value


def test_a_struct_without_a_comparison_is_compared_by_its_fields(store: falaj.Store) -> None:
    msgspec = pytest.importorskip("msgspec")
    alone: Any = msgspec.defstruct("Alone", [("a", int), ("any", Any, None)], eq=False)
    holds = msgspec.defstruct(
        "Holds",
        [("one", alone), ("all", dict[str, list[alone]]), ("grows", GrowsAlone)],
    )
    own = msgspec.defstruct("Own", [("a", int)], namespace={"__eq__": lambda *_: False})
    assert holds(alone(1), {}, GrowsAlone(1)) != holds(alone(1), {}, GrowsAlone(1))
    topic: Any = store.topic("alone", codec=alone)
    topic.append(alone(1))
    assert (topic[0].value.a, topic[0].value.any) == (1, None)
    with pytest.raises(InvalidArgument, match="would not give this Alone back"):
        topic.append(alone(1, (1, 2)))
    held: Any = store.topic("holds", codec=holds)
    with pytest.raises(InvalidArgument, match="would not give this Holds back"):
        held.append(holds(alone(1), {"x": [alone(2)]}, GrowsAlone(1)))
    refused: Any = store.topic("own", codec=own)
    with pytest.raises(InvalidArgument, match="would not give this Own back"):
        refused.append(own(1))
    assert (len(topic), len(held), len(refused)) == (1, 0, 0)


def test_a_struct_or_model_that_holds_what_has_no_comparison_comes_back(
    store: falaj.Store,
) -> None:
    msgspec, attrs = pytest.importorskip("msgspec"), pytest.importorskip("attrs")
    pydantic = pytest.importorskip("pydantic")

    @dataclass(eq=False)
    class Alone:
        x: int

    struct = msgspec.defstruct("Struct", [("x", int)], eq=False)
    made = attrs.make_class("Made", {"x": attrs.field(type=struct)})
    fields = [("one", struct), ("all", list[made]), ("alone", Alone)]  # type: ignore[valid-type]
    holds = msgspec.defstruct("Holds", fields)

    class Part(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        x: Alone
        __eq__ = object.__eq__

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        model_config = pydantic.ConfigDict(extra="allow")
        part: Part
        parts: deque[tuple[Alone, int]]

    class Lossy(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        alone: Alone
        secret: int = pydantic.Field(default=0, exclude=True)

    values: list[Any] = [
        holds(struct(1), [made(struct(2))], Alone(3)),
        Model(part=Part(x=Alone(1)), parts=deque([(Alone(2), 3)]), more=4),
        Lossy(alone=Alone(1)),
    ]
    topic: Any = None
    for value in values:
        topic = store.topic(type(value).__name__, codec=type(value))
        topic.append(value)
        assert (
            repr(topic[0].value).partition(" object at")[0]
            == repr(value).partition(" object at")[0]
        )
    with pytest.raises(InvalidArgument, match="would not give this Lossy back"):
        topic.append(Lossy(alone=Alone(1), secret=5))
