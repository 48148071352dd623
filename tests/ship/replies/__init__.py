"""Faulty replies: shippers, followers and restores over a place whose answers mostly lie or fail.

| module | owns |
|---|---|
| `simulated` | time, waits, random bytes and threads of a run: all come from one seed |
| `witness` | the true order of numbers, and what the store held when each was sent |
| `world` | the processes of one store, their deaths and pauses, and what is asked of them |

All is in memory and in one thread, so a run repeats with its seed, and an hour takes no time.
`python -m ship.replies --help` runs it.
"""
