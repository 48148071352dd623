"""The benchmark runner: measures, compares with the floors and the bars, tabulates, plots.

`python -m runner` measures (see `__main__`), `python -m runner.keep` writes the figures of the last
run into the tree. Results have one shape, that of pytest-benchmark's JSON, see `results`.
"""
