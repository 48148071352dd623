"""Sizes, seeds and repetitions: every constant of the benchmarks is here.

`make bench` uses `FULL`. `make test` runs `TINY` once, so that no benchmark breaks unnoticed.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much is measured, and how often."""

    rounds: int = 7
    """Interleaved rounds that count; one more before them is thrown away."""
    warmups: int = 1
    """Rounds before them that are thrown away, where tables are read."""
    value_bytes: int = 100
    records: int = 300_000
    """Records that each contestant appends in a round."""
    batch: int = 1_000
    """Records of one extend."""
    read_records: int = 1_000_000
    lookups: int = 20_000
    """Random lookups in a round, among `read_records`."""
    durable: int = 30
    """Durable appends of each contestant in a turn; a round has several."""
    processes: int = 8
    """Processes that append durably together."""
    contention_s: float = 0.4
    """How long two processes compete in a round."""
    follow_hz: int = 1_000
    follow_s: float = 1.5
    """How long records are appended for a follower, in each round."""
    idle_s: float = 1.0
    """How long a follower waits for nothing in a round."""
    starts: int = 15
    """New processes of each kind."""
    segments: int = 1_000
    """Segments of the long topic."""
    grown_segments: int = 200
    """Segments of the topic in which records are looked up."""
    grown_segment_bytes: int = 2 << 20
    new_topics: int = 200
    """Topics that are created one after the other in a new store."""
    segment_bytes: int = 64 << 20
    """Bytes of the segment whose size on disk is measured: the default."""
    kills: int = 15
    """Writers killed while they hold the lock."""
    tables: int = 3_000_000
    """Records that Spark, Polars and DuckDB read, each with a key and a time."""
    table_keys: int = 10_000
    """Different keys among them."""
    tiny: int = 1_000
    """Records of the topic that shows the cost of a query before it reads anything."""
    peer_s: float = 0.3
    """How long a turn of an alternative lasts."""
    peer_records: int = 200_000
    """Records that each alternative reads in a turn."""
    peer_fresh_bytes: int = 256 << 20
    """Memory touched before each of these turns."""
    post_s: float = 0.7
    """How long a turn of requests to a server lasts."""
    followers: int = 20_000
    """Streams of the server that wait."""
    idle_followers_s: float = 10.0
    served_topics: int = 1_000
    """Topics of the store that a server is started on."""
    shipped_mb: int = 96
    """Megabytes of a log that is shipped and restored in a round."""
    shipped_step_mb: int = 32
    """Megabytes between two flushes of it."""
    puts: int = 25
    """Appends that wait for a place, and raw puts beside them, in a round."""
    put_delay_s: float = 0.03
    """Seconds that are added to each put, so that a place of loopback answers as a bucket does."""
    remote_threads: int = 8
    """Threads that wait for the place at a time."""
    flushes: int = 2_000
    """Small flushes after which the objects of the place are counted."""
    idle_shipper_s: float = 5.0
    memcpy_bytes: int = 64 << 20
    warm_bytes: int = 1 << 30
    """Memory touched once before anything is measured."""
    seed: int = 20_260_101

    @property
    def fresh_bytes(self) -> int:
        """Memory that a round of appends takes, with the pages that are touched ahead."""
        return 2 * self.records * (self.value_bytes + 40) + (4 << 20)


FULL = Sizes()
TINY = Sizes(
    rounds=1,
    warmups=0,
    records=200,
    batch=20,
    read_records=400,
    lookups=20,
    durable=2,
    processes=2,
    contention_s=0.02,
    follow_hz=200,
    follow_s=0.1,
    idle_s=0.1,
    starts=1,
    segments=3,
    grown_segments=3,
    grown_segment_bytes=64 << 10,
    new_topics=2,
    segment_bytes=64 << 10,
    kills=1,
    tables=2_000,
    table_keys=10,
    tiny=10,
    peer_s=0.01,
    peer_records=100,
    peer_fresh_bytes=0,
    post_s=0.05,
    followers=8,
    idle_followers_s=0.1,
    served_topics=3,
    shipped_mb=2,
    shipped_step_mb=1,
    puts=2,
    put_delay_s=0.001,
    remote_threads=2,
    flushes=3,
    idle_shipper_s=0.1,
    memcpy_bytes=1 << 20,
    warm_bytes=1 << 20,
)
# Fewest bytes of a segment: topics of many segments use these.
SMALL_SEGMENT_BYTES = 64 << 10
