"""A member of a consumer group over HTTP, as a client would write it."""

import json
from typing import Any

from server.doors import Reply, Server


class Member:
    """Polls with numbers, and begins again where its session ended."""

    def __init__(self, server: Server, group: str, name: str, **begins: Any) -> None:
        self.server, self.path, self.name = server, f"/v1/groups/{group}", name
        self.begins, self.number = begins, 0

    def ask(self, verb: str, **members: Any) -> Reply:
        """Send one request."""
        body = json.dumps({"member": self.name, **members}).encode()
        return self.server.post(f"{self.path}/{verb}", body)

    def poll_again(self, **members: Any) -> Reply:
        """Poll with the number of the last poll."""
        begins = self.begins if self.number == 1 else {}
        return self.ask("poll", **{"number": self.number, **begins, **members})

    def poll(self, **members: Any) -> list[dict[str, Any]]:
        """Get the next records."""
        self.number += 1
        reply = self.poll_again(**members)
        assert reply.status == 200, reply
        assert (reply.json["member"], reply.json["number"]) == (self.name, self.number)
        self.assigned = [(one["topic"], one["partition"]) for one in reply.json["assigned"]]
        records: list[dict[str, Any]] = reply.json["records"]
        return records

    def commit(self, *offsets: tuple[str, int, int], **members: Any) -> Reply:
        """Commit offsets of partitions."""
        names = ("topic", "partition", "offset")
        all_of = [dict(zip(names, one, strict=True)) for one in offsets]
        return self.ask("commit", offsets=all_of, **members)

    def commit_all(self, records: list[dict[str, Any]]) -> Reply:
        """Commit what these records came to."""
        ends = {(one["topic"], one["partition"]): one["offset"] + 1 for one in records}
        return self.commit(*((*part, offset) for part, offset in ends.items()))


def values(records: list[dict[str, Any]]) -> list[str]:
    """List the values of records."""
    return [one["value"] for one in records]
