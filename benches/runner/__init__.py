"""The benchmark runner: measures, compares with the lower bounds and the targets, tabulates, plots.

`python -m runner` measures (see `__main__`). `python -m runner.keep` writes the figures of the last
run into the tree. Results have the shape of pytest-benchmark's JSON, see `results`.
"""
