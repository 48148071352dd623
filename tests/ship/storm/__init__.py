"""A storm of kills: writers, the shipper and restores of one store die again and again.

| module | owns |
|---|---|
| `points` | named points at which a process dies, and the wrappers that meet them |
| `account` | what was written outside of the store and of the place, and survives each kill |
| `actors` | what each process does until it dies |
| `rounds` | the processes of one round: they are forked, killed, and replaced |
| `judge` | each number of a round is restored, and compared with the account |

The records of a topic say their own offset, so a restored store needs no other witness of their
order. Nothing here stands in the shipped package: wrappers of the place, of the store and of the
builder meet the points. A process is forked from one that imported all and opened nothing.
`python -m ship.storm --help` runs it.
"""
