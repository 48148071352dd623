"""`python -m falaj`: the program, where its script is not on PATH."""

from falaj.cli import main

if __name__ == "__main__":
    main()
