"""The rules of the protocol one by one, also those that no place which keeps its promises reaches.

test_explore.py has their orders. Here a driver answers by hand.
"""

from typing import TypeVar

import pytest

from falaj.ship.messages import (
    EMPTY,
    Acknowledge,
    Action,
    Again,
    Apply,
    Believe,
    Checkpoint,
    CheckpointNow,
    Claim,
    Delete,
    Ended,
    Event,
    Expire,
    Flush,
    GetCheckpoint,
    GetNumber,
    GotCheckpoint,
    GotNumber,
    Head,
    Hold,
    ListCheckpoints,
    Listed,
    Number,
    PutCheckpoint,
    PutCheckpointDone,
    PutDone,
    PutNumber,
    Reason,
    Silence,
    Stop,
    Wait,
)
from falaj.ship.protocol import Reading, Shipping

Machine = TypeVar("Machine", Reading, Shipping)

CLAIM_1 = Number("claim", 1, 1, "", "h1")
FLUSH_2 = Number("flush", 2, 1, "h1", "h2")
FLUSH_3 = Number("flush", 3, 1, "h2", "h3")


def told(machine: Machine, *events: Event) -> tuple[Machine, tuple[Action, ...]]:
    """Start the machine and give it the events; return it, and what the last one led to."""
    machine, actions = machine.start()
    return told_more(machine, *events) if events else (machine, actions)


def told_more(machine: Machine, *events: Event) -> tuple[Machine, tuple[Action, ...]]:
    actions: tuple[Action, ...] = ()
    for event in events:
        machine, actions = machine.on(event)
    return machine, actions


def holding() -> Shipping:
    """Return a shipper whose claim is number 1."""
    events = (Listed(()), GotNumber(None), Claim(), PutDone("h1", True), Listed(()))
    shipper, actions = told(Shipping(), *events)
    assert actions == (Apply(CLAIM_1), Hold(1))
    return shipper


# --- Reading --------------------------------------------------------------------------------------


def test_a_follower_begins_with_the_newest_checkpoint_and_applies_what_follows() -> None:
    checkpoint = Checkpoint(2, 1, "h2")
    follower, actions = told(Reading("follow"), Listed((1, 2)))
    assert actions == (GetCheckpoint(2),)
    follower, actions = follower.on(GotCheckpoint(checkpoint))
    assert actions == (Believe(checkpoint), GetNumber(3))
    assert follower.on(GotNumber(FLUSH_3))[1] == (Apply(FLUSH_3), GetNumber(4))


def test_a_follower_waits_asks_again_and_looks_for_a_checkpoint_after_silence() -> None:
    follower, actions = told(Reading("follow"), Listed(()), GotNumber(None))
    assert actions == (Wait(1),)
    assert follower.on(Again())[1] == (GetNumber(1),)
    assert told_more(follower, Silence(), Listed(()))[1] == (Wait(1),)
    assert told_more(follower, Silence(), Listed((4,)))[1] == (GetCheckpoint(4),)


def test_a_checkpoint_that_was_deleted_since_the_list_is_listed_again() -> None:
    assert told(Reading("end"), Listed((2,)), GotCheckpoint(None))[1] == (ListCheckpoints(0),)


def test_a_claim_is_believed_after_a_look_alone() -> None:
    follower, actions = told(Reading("follow"), Listed(()), GotNumber(CLAIM_1))
    assert actions == (ListCheckpoints(0),)
    assert follower.on(Listed(()))[1] == (Apply(CLAIM_1), GetNumber(2))
    assert follower.on(Listed((7,)))[1] == (GetCheckpoint(7),)


@pytest.mark.parametrize(
    "found",
    [
        Number("flush", 2, 1, "other", "h2"),
        Number("flush", 2, 2, "h1", "h2"),  # its claim was never passed
    ],
)
def test_a_break_of_the_chain_stops_unless_a_newer_checkpoint_explains_it(found: Number) -> None:
    events = (Listed(()), GotNumber(CLAIM_1), Listed(()), GotNumber(found))
    follower, actions = told(Reading("follow"), *events)
    assert actions == (ListCheckpoints(0),)
    assert follower.on(Listed(()))[1] == (Stop(Reason.BROKEN_CHAIN, 2),)
    assert follower.on(Listed((5,)))[1] == (GetCheckpoint(5),)


def test_a_number_of_a_lower_claim_is_passed_without_being_applied_or_deleted() -> None:
    late, after = Number("flush", 6, 1, "h5", "h6"), Number("flush", 7, 5, "h6", "h7")
    begun = (Listed((5,)), GotCheckpoint(Checkpoint(5, 5, "h5")))
    follower, actions = told(Reading("follow"), *begun, GotNumber(late))
    assert actions == (GetNumber(7),)
    follower, actions = follower.on(GotNumber(after))
    assert (actions[0], follower.garbage) == (Apply(after), ((7, 8),))


def test_a_list_that_forgot_a_checkpoint_stops_the_machine() -> None:
    begun = (Listed((3,)), GotCheckpoint(Checkpoint(3, 1, "h3")), GotNumber(None))
    reader, actions = told(Reading("end"), *begun)
    assert actions == (ListCheckpoints(3),)
    stopped, actions = reader.on(Listed(()))
    assert actions == (Stop(Reason.STALE_LIST, 3),)
    assert stopped.on(Again()) == (stopped, ())


def test_a_restore_of_a_number_ends_when_the_next_checkpoint_proves_the_chain() -> None:
    reader, actions = told(Reading("end", until=2), Listed((1, 3)))
    base, cover = Checkpoint(1, 1, "h1"), Checkpoint(3, 1, "h3")
    reader, actions = reader.on(GotCheckpoint(base))
    assert actions == (Believe(base), GetCheckpoint(3))
    reader, actions = told_more(reader, GotCheckpoint(cover), GotNumber(FLUSH_2))
    assert actions == (Apply(FLUSH_2), GetNumber(3))
    assert reader.on(GotNumber(FLUSH_3))[1] == (Ended(2),)
    for wrong in (None, Number("flush", 3, 1, "h2", "other"), Number("flush", 3, 1, "?", "h3")):
        assert reader.on(GotNumber(wrong))[1] == (Stop(Reason.HISTORY_DELETED, 3),)


def test_a_restore_of_a_number_that_is_a_checkpoint_reads_no_number() -> None:
    checkpoint = Checkpoint(3, 1, "h3")
    events = (Listed((1, 3, 5)), GotCheckpoint(checkpoint))
    assert told(Reading("end", until=3), *events)[1] == (Believe(checkpoint), Ended(3))


def test_a_restore_of_an_empty_place_ends_at_nothing() -> None:
    assert told(Reading("end"), Listed(()), GotNumber(None), Listed(()))[1] == (Ended(0),)


# --- Shipping -------------------------------------------------------------------------------------


def test_a_flush_is_acknowledged_when_the_place_created_it() -> None:
    shipper, actions = holding().on(Flush("a"))
    assert actions == (PutNumber(Head("flush", 2, 1, "h1"), "a"),)
    assert shipper.on(PutDone("h2", True))[1] == (Apply(FLUSH_2), Acknowledge(2, "a"))


def test_an_unknown_create_is_read_and_sent_again_with_the_same_body() -> None:
    shipper, actions = told_more(holding(), Flush("a"), PutDone("h2", False))
    assert actions == (GetNumber(2),)
    shipper, actions = shipper.on(GotNumber(None))
    assert actions == (PutNumber(Head("flush", 2, 1, "h1"), "a"),)
    with pytest.raises(ValueError, match="the same bytes"):
        shipper.on(PutDone("other", False))
    shipper, _ = shipper.on(PutDone("h2", False))
    assert shipper.on(GotNumber(FLUSH_2))[1] == (Apply(FLUSH_2), Acknowledge(2, "a"))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Number("claim", 2, 2, "h1", "x"), Reason.FENCED),
        (Number("flush", 2, 9, "h1", "x"), Reason.FENCED),
        (Number("flush", 2, 1, "h1", "x"), Reason.TWIN),
        (Number("flush", 2, 0, "?", "x"), Reason.BROKEN_CHAIN),
    ],
)
def test_another_body_at_its_number_stops_a_shipper(found: Number, reason: Reason) -> None:
    shipper, _ = told_more(holding(), Flush("a"), PutDone("h2", False))
    stopped, actions = shipper.on(GotNumber(found))
    assert actions == (Stop(reason, 2),)
    assert stopped.on(Flush("b")) == (stopped, ())


def test_a_number_of_a_lower_claim_lets_the_flush_take_the_next_number() -> None:
    shipper, _ = told_more(holding(), Flush("a"), PutDone("h2", False))
    shipper, actions = shipper.on(GotNumber(Number("flush", 2, 0, "h1", "x")))
    assert actions == (PutNumber(Head("flush", 3, 1, "x"), "a"),)
    shipper, actions = shipper.on(PutDone("h3", True))
    assert actions[-1] == Acknowledge(3, "a")
    made = shipper.on(CheckpointNow())[1]
    assert made == (PutCheckpoint(Checkpoint(3, 1, "h3", ((3, 4),))),)  # 2 keeps its key


def test_a_claimer_whose_number_is_taken_reads_on_and_compares_again() -> None:
    events = (Listed(()), GotNumber(None), Claim(), PutDone("mine", False), GotNumber(CLAIM_1))
    shipper, actions = told(Shipping(), *events)
    assert actions == (ListCheckpoints(0),)
    shipper, actions = told_more(shipper, Listed(()), GotNumber(None))
    assert actions == (Ended(1),)
    assert shipper.on(Claim())[1] == (PutNumber(Head("claim", 2, 2, "h1"), ""),)


def test_a_claim_that_a_newer_checkpoint_covers_is_given_up() -> None:
    events = (Listed(()), GotNumber(None), Claim(), PutDone("h1", True), Listed((4,)))
    shipper, actions = told(Shipping(), *events)
    assert actions == (GetCheckpoint(4),)
    begun = (GotCheckpoint(Checkpoint(4, 2, "h4")), GotNumber(None), Claim())
    assert told_more(shipper, *begun)[1] == (PutNumber(Head("claim", 5, 5, "h4"), ""),)


def test_a_shipper_that_starts_over_claims_again_though_it_meets_its_old_claim() -> None:
    claim_3 = Number("claim", 3, 3, "h2", "mine")
    before = (Listed(()), GotNumber(CLAIM_1), Listed(()), GotNumber(FLUSH_2), GotNumber(None))
    shipper, actions = told(Shipping(), *before, Claim(), PutDone("mine", True), Listed((2,)))
    assert actions == (GetCheckpoint(2),)
    again = (GotCheckpoint(Checkpoint(2, 1, "h2")), GotNumber(claim_3), Listed((2,)))
    shipper, actions = told_more(shipper, *again)
    assert actions == (Apply(claim_3), GetNumber(4))
    assert shipper.on(GotNumber(None))[1] == (Ended(3),)


def test_garbage_is_deleted_when_the_place_is_known_to_have_its_checkpoint() -> None:
    shipper, actions = told_more(holding(), Flush("a"), PutDone("h2", True), CheckpointNow())
    checkpoint = Checkpoint(2, 1, "h2", ((2, 3),))
    assert actions == (PutCheckpoint(checkpoint),)
    assert shipper.on(CheckpointNow())[1] == ()  # one at a time
    with pytest.raises(ValueError, match="not known to lie in the place"):
        shipper.on(Expire(checkpoint))
    shipper, actions = shipper.on(PutCheckpointDone(False))
    assert actions == (GetCheckpoint(2),)
    assert shipper.on(GotCheckpoint(None))[1] == (PutCheckpoint(checkpoint),)
    shipper, actions = shipper.on(GotCheckpoint(checkpoint))
    assert (actions, shipper.on(Expire(checkpoint))[1]) == ((), (Delete(((2, 3),)),))
    assert shipper.reading.garbage == ()
    assert told_more(shipper, Silence(), Listed(()))[1] == (Stop(Reason.STALE_LIST, 2),)
    assert shipper.on(CheckpointNow())[1] == ()  # nothing is new


def test_a_checkpoint_may_be_on_its_way_beside_a_flush_and_lists_nothing_later() -> None:
    shipper, _ = told_more(holding(), Flush("a"), PutDone("h2", True), CheckpointNow())
    shipper, _ = told_more(shipper, Flush("b"), PutDone("h3", True), PutCheckpointDone(True))
    made = shipper.on(CheckpointNow())[1]
    assert made == (PutCheckpoint(Checkpoint(3, 1, "h3", ((3, 4),))),)


def test_another_checkpoint_of_the_same_number_stops_a_shipper() -> None:
    shipper, _ = told_more(holding(), CheckpointNow(), PutCheckpointDone(False))
    found = GotCheckpoint(Checkpoint(1, 1, "other"))
    assert shipper.on(found)[1] == (Stop(Reason.OTHER_CHECKPOINT, 1),)


def test_a_shipper_that_slept_stops_at_a_checkpoint_of_another() -> None:
    shipper, actions = holding().on(Silence())
    assert actions == (ListCheckpoints(0),)
    assert shipper.on(Listed((5,)))[1] == (Stop(Reason.OVERTAKEN, 5),)
    shipper, actions = shipper.on(Listed(()))
    assert (actions, shipper.on(Flush("a"))[1]) == ((), holding().on(Flush("a"))[1])


def test_a_late_checkpoint_below_its_claim_does_not_stop_a_shipper_that_slept() -> None:
    begun = (Listed(()), GotNumber(CLAIM_1), Listed(()), GotNumber(None), Claim())
    shipper, actions = told(Shipping(), *begun, PutDone("h", True), Listed(()))
    assert actions[-1] == Hold(2)
    assert told_more(shipper, Silence(), Listed((1,)))[1] == ()
    _, actions = told_more(shipper, CheckpointNow(), Silence(), Listed((2,)))
    assert actions == ()  # its own, which has landed


@pytest.mark.parametrize(
    "event", [Claim(), Flush("a"), GotNumber(CLAIM_1), PutDone("h", True), Again()]
)
def test_an_event_that_was_not_asked_for_is_an_error_of_the_driver(event: Event) -> None:
    with pytest.raises(ValueError, match="waits for"):
        told(Shipping(), event)


def test_an_answer_to_another_question_is_an_error_of_the_driver() -> None:
    with pytest.raises(ValueError, match="asked for number 1"):
        told(Reading("follow"), Listed(()), GotNumber(FLUSH_2))
    with pytest.raises(ValueError, match="asked for checkpoint 2"):
        told(Reading("follow"), Listed((2,)), GotCheckpoint(EMPTY))
    with pytest.raises(ValueError, match="begun already"):
        told(Reading("follow"))[0].start()
