"""Build the client's wheel, install it in an empty environment, and use it there without falaj.

Owns the check that the wheel needs nothing but its dependencies. Usage: client_wheel.py DIRECTORY
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USE = """
import importlib.util, falaj_client
assert importlib.util.find_spec("falaj") is None
with falaj_client.connect("http://127.0.0.1:9", timeout=0.1) as store:
    try:
        store.topic("orders")
    except falaj_client.Error as error:
        assert isinstance(error, ConnectionError), error
    else:
        raise SystemExit("there is a server at port 9")
"""


def main(directory: str) -> None:
    """Build, install, use."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*build, str(Path(directory).absolute())], cwd=ROOT / "client", check=True)
    wheel = max(Path(directory).glob("falaj_client-*.whl"), key=lambda path: path.stat().st_mtime)
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run([sys.executable, "-m", "venv", empty], check=True)
        python = str(Path(empty) / "bin/python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
        subprocess.run([python, "-W", "error", "-c", USE], cwd=empty, check=True)
    print(f"{wheel} works without falaj")


if __name__ == "__main__":
    main(*sys.argv[1:])
