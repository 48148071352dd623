"""Make the pictures of the server's page for the documentation: `make page-images`.

A store of a small shop is made, a server serves it, and a browser without a window draws its page.
"""

import json
import random
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

import falaj  # noqa: E402  # the path comes first
from server.browser import Browser  # noqa: E402
from server.doors import Server  # noqa: E402
from server.watching import wrong  # noqa: E402

IMAGES = ROOT / "docs/images"
CITIES = ("Muscat", "Nizwa", "Sur", "Salalah", "Lisbon", "Kyoto", "Lima", "Oslo")
GOODS = ("coffee", "dates", "frankincense", "apples", "copper pot", "rose water")


def order(random_: random.Random, number: int) -> bytes:
    """Make an order."""
    lines = [
        {
            "good": random_.choice(GOODS),
            "count": random_.randint(1, 9),
            "price": random_.randint(2, 90),
        }
        for _ in range(random_.randint(1, 3))
    ]
    document = {
        "order": number,
        "city": random_.choice(CITIES),
        "lines": lines,
        "gift": number % 7 == 0,
    }
    return json.dumps(document).encode()


def main(out: Path) -> None:
    """Make them."""
    random_ = random.Random(2013)
    with (
        tempfile.TemporaryDirectory(prefix="falaj-") as directory,
        falaj.open(Path(directory) / "shop") as store,
    ):
        orders = store.partitioned_topic("orders", partitions=4, codec="json")
        for number in range(4000):
            orders.append(
                json.loads(order(random_, number)),
                key=f"customer-{random_.randint(1, 200)}",
                headers={"source": random_.choice(("web", "app", "shop"))},
            )
        payments = store.topic("payments", codec="json")
        payments.extend([{"order": n, "cents": random_.randint(200, 90000)} for n in range(2500)])
        customers = store.topic("customers", codec="json", compacted=True)
        for number in range(200):
            customers.append(
                {"name": f"Customer {number}", "city": random_.choice(CITIES)},
                key=f"customer-{number}",
            )
        sensors = store.topic("sensors")
        sensors.extend([random_.randbytes(120) for _ in range(20000)])
        returns = store.topic("returns-2025", codec="str")
        returns.extend([f"order {n} came back" for n in range(31)])
        returns.finish()
        store.queue("invoices").put_many([b"order %d" % n for n in range(12)])
        with store.consumer("billing", ["payments"]) as group:
            group.poll(400)
            group.commit()
        ended = threading.Event()

        def live() -> None:
            number = 4000
            while not ended.wait(0.02):
                number += 1
                orders.append(
                    json.loads(order(random_, number)), key=f"customer-{random_.randint(1, 200)}"
                )
                sensors.extend([random_.randbytes(120) for _ in range(random_.randint(1, 12))])
                if number % 5 == 0:
                    payments.append({"order": number, "cents": random_.randint(200, 90000)})

        thread = threading.Thread(target=live)
        thread.start()
        try:
            with Server(store.path, "--open") as server, Browser() as browser:
                pictures(browser, f"http://127.0.0.1:{server.port}/", out)
                assert not wrong(browser), wrong(browser)
        finally:
            ended.set()
            thread.join()


def pictures(browser: Browser, address: str, out: Path) -> None:
    """Draw the pages."""
    browser.size(1200, 760)
    browser.prefer("light")
    browser.go(address)
    browser.until(
        "document.querySelectorAll('polyline')[2]?.getAttribute('points').split(' ').length > 12",
        60,
    )
    (out / "page-topics.webp").write_bytes(browser.image("webp"))
    browser.prefer("dark")
    browser.run("location.hash = '#/topics/orders'")
    browser.until("document.querySelectorAll('.row').length > 20")
    browser.press("ArrowUp", "ArrowUp", "ArrowUp", "Enter")
    browser.until("document.querySelector('.pane .fold')")
    (out / "page-record.webp").write_bytes(browser.image("webp"))
    browser.press("Escape")
    browser.size(400, 720)
    browser.prefer("light")
    browser.until("document.querySelectorAll('.row').length > 5")
    (out / "page-narrow.webp").write_bytes(browser.image("webp"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
