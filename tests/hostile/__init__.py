"""Hostile bytes and failing calls, through Python.

| module | owns |
|---|---|
| `example` | the store that is harmed, and its true content |
| `harms`, `forge` | the harm, as by bad disks, careless copies and forgers |
| `pieces` | the places of numbers in each kind of file, and their checksums |
| `asker`, `questions` | the process that reads a store, and its questions |
| `judge` | the allowed answers |
"""
