"""Bytes that nobody wrote, and calls that fail, through Python.

| room | owns |
|---|---|
| `example` | the store that is harmed, and what is true of it |
| `harms`, `forge` | what is done to it, as media and careless copies do, and as forgers do |
| `pieces` | where numbers stand in each kind of file, and the checksum over them |
| `asker`, `questions` | the process that looks at a store, and what it asks |
| `judge` | what may be answered |
"""
