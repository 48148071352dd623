"""The one judgement that the harness rests on: each answer is the original's, or a typed error.

Owns the allowed answers of a harmed store (`Trust`), and of a copy of it that was written to. The
true answers come from asking the store before it was harmed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile import example
from hostile.harms import Harm, Trust

KINDS = ("CorruptData", "NeedsRecovery", "UnsupportedVersion", "NotAStore")
"""Errors that say that bytes are not what was written."""
NO_MEMORY = "[errno 12]"

Told = dict[str, Any]
"""The answers of questions.py about one store."""


@dataclass(frozen=True)
class Right:
    """The true answers."""

    read: Told

    def values(self, lane: str) -> dict[int, str]:
        """The records of a partition, by offset."""
        return dict(self.read["told"][f"{lane} seen"])

    @property
    def lanes(self) -> list[str]:
        return [name.removesuffix(" seen") for name in self.read["told"] if name.endswith(" seen")]


class Judge:
    """Compares the answers about one harmed store with the true ones."""

    def __init__(self, right: Right, harm: Harm, story: str, mended: bool) -> None:
        self.right, self.harm, self.story, self.mended = right, harm, story, mended

    def judge(self, path: Path, found: dict[str, Any], copy: Path) -> bool:
        """Compare all answers; true if an error was reported."""
        read = found["read"]
        self._errors(path, read, self.harm.trust)
        self._values(read["told"])
        self._read(read["told"], read["errors"])
        detected = bool(read["errors"])
        if "write" in found:
            write = found["write"]
            # Behind corruption the log continues: offsets skip, and acknowledged records may be
            # lost.
            trust = self.harm.trust if not detected and not self.mended else Trust.VALUES
            self._errors(copy, write, min(trust, self.harm.trust))
            self._values(write["told"])
            self._write(write["told"], write["errors"], min(trust, self.harm.trust))
            detected |= bool(write["errors"])
        return detected

    def is_so(self, holds: object, what: str) -> None:
        assert holds, f"{self.story}: {what}"

    def _errors(self, path: Path, told: Told, trust: Trust) -> None:
        self.is_so(not told["strange"], f"no error of falaj's: {told['strange']}")
        for name, kind, said in told["errors"]:
            self.is_so(NO_MEMORY not in said, f"{name}: memory without bound: {said}")
            if trust == Trust.ALL:
                # A flag in the page that says so is believed; that error names the topic.
                deleted = self.harm.path.name == "control" and "was deleted; open it again" in said
                self.is_so(deleted or str(path) in said, f"{name}: no path in {said!r}")
                fits = deleted or kind.startswith(KINDS)
                self.is_so(fits, f"{name}: {kind} is no error for damage: {said}")

    def _values(self, told: Told) -> None:
        """Check that each returned record is the one that was appended there."""
        if self.harm.trust == Trust.NOTHING:
            return
        for lane in self.right.lanes:
            true = self.right.values(lane)
            served = list(told.get(f"{lane} seen", ()))
            served += told.get(f"{lane} slice", ())
            served += [a for name, a in told.items() if name.startswith(f"{lane} [")]
            served += [
                r[2:]
                for name, a in told.items()
                if name.endswith(" polled")
                for r in a
                if f"{r[0]} {r[1]}" == lane
            ]
            if lane == "orders 0":
                served += told.get("work taken", ())
            # In an older or a shorter store, offsets are used again.
            if (new := told.get("appended", {}).get(lane.removesuffix(" 0"))) is not None:
                true[new] = "new"
            for offset, value in served:
                self.is_so(value == true.get(offset), f"record {offset} of {lane} is another one")

    def _read(self, told: Told, errors: list[Any]) -> None:
        if self.harm.trust != Trust.ALL:
            return
        right = self.right.read["told"]
        for name, answer in told.items():
            true = right[name]
            if name.endswith(" seen"):
                self.is_so(answer == true[: len(answer)], f"{name} is wrong")
                self.is_so(answer == true or errors, f"{name} ends without an error")
            elif name.startswith("consumer "):
                self._cursors(name.removeprefix("consumer "), answer, true)
            elif name.startswith("queue "):
                self.is_so(answer[0] == true[0] and answer[1] <= true[1], f"{name} is {answer}")
            elif name == "verify":
                self.is_so(
                    answer["worst"] or not errors, f"verify finds nothing, readers got {errors}"
                )
                self.is_so(not answer["outside"], f"verify names {answer['outside']}")
            else:
                self.is_so(answer == true, f"{name} is {answer}, not {true}")
        missing = right.keys() - told.keys()
        self.is_so(not missing or errors, f"no answer to {missing}")

    def _cursors(self, name: str, answer: Any, true: Any) -> None:
        self.is_so(answer[0] == true[0], f"{name} keeps its cursors in {answer[0]}")
        found = {(name, topic, number): at for topic, number, at in answer[1]}
        for place, may in example.CURSORS.items():
            if place[0] == name:
                self.is_so(found.get(place) in may, f"cursor {place} is at {found.get(place)}")

    def _write(self, told: Told, errors: list[Any], trust: Trust) -> None:
        if trust == Trust.NOTHING:
            return
        for name in ("orders", "shop"):
            if f"{name} new" in told:
                offset, value = told[f"{name} new"]
                right = (told["appended"][name], "new")
                self.is_so(
                    (offset, value) == right or trust < Trust.ALL,
                    f"what was appended to {name} is another",
                )
                end = len(self.right.values(f"{name} 0"))
                if self.harm.trust == Trust.ALL and not self.mended:
                    self.is_so(offset >= end, f"{offset} of {name} is used a second time")
                self.is_so(offset == end or trust < Trust.ALL, f"{name} continues at {offset}")
        if trust < Trust.ALL:
            return
        for name in ("orders", "shop"):
            self.is_so(told.get(f"{name} found", True), f"what was appended to {name} is gone")
        for (name, topic, number), may in example.CURSORS.items():
            where = f"{topic} {number}"
            begins = told.get(f"{name} begins {where}")
            if begins is None:
                continue
            self.is_so(begins in may, f"{name} resumes at {begins} of {where}")
            if f"{name} ends {where}" in told:
                polled = [r[2] for r in told[f"{name} polled"] if f"{r[0]} {r[1]}" == where]
                end = len(self.right.values(where)) + (number == 0)
                self.is_so(polled == list(range(begins, end)), f"{name} polls {polled} of {where}")
                ends = told[f"{name} ends {where}"]
                self.is_so(ends == end, f"{name} commits {ends} of {where}")
                now = told.get(f"{name} found {where}", end)
                self.is_so(now == end, f"{name} is later at {now} of {where}")
        if told.get("work done"):
            taken = [offset for offset, _ in told["work taken"]]
            self.is_so(len(set(taken)) == len(taken), "a job is delivered twice")
            end = len(self.right.values("orders 0")) + 1
            wanted = set(range(end)) - example.DONE
            self.is_so(wanted <= set(taken), f"jobs {wanted - set(taken)} are not delivered")
            hurt = self.harm.path.name == example.QUEUE[0]
            self.is_so(hurt or wanted == set(taken), f"jobs {set(taken) - wanted} are done again")
