"""A soak: all harnesses in shards for hours, gone on with after any interruption.

| module | owns |
|---|---|
| `harnesses` | what is run, for which share of the time, towards which target |
| `counts` | how much of it was done, read from what the harnesses keep themselves |
| `sources` | what the harnesses are made from; a soak is of one state of it; copies of it |
| `state` | what the soak remembers beyond that, in one file that is there whole or not at all |
| `pieces` | one harness at work for some minutes, and how it ends |
| `keeper` | the process above each piece: nothing of the piece outlives it, nor it the driver |
| `findings` | which files are whose, and what was found as it stands in them |
| `driver` | which piece is next, what becomes of a finding, space on the disks, the end |
| `progress` | the table for people |
| `ledger` | the row in docs/RELIABILITY.md |
| `sketch` | how many different crash states all soaks came by; tools/soak/states.txt |

Section "How to soak" of docs/RELIABILITY.md says what a user sees. Nothing here judges falaj: the
harnesses do.
"""
