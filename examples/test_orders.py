"""Tests of code that uses a store: falaj's pytest plugin gives the fixture `falaj_store`.

Run it: pytest examples/test_orders.py
"""

import pytest

import falaj


class Orders:
    """The code under test: stores orders, and adds up what is owed for them."""

    def __init__(self, store: falaj.Store) -> None:
        self.topic = store.topic("orders", codec="json")

    def place(self, customer: str, price: int) -> None:
        """Store an order."""
        self.topic.append({"price": price}, key=customer)

    def owed_by(self, customer: str) -> int:
        """Add up the orders of a customer."""
        mine = (order for order in self.topic if order.key == customer.encode())
        return sum(order.value["price"] for order in mine)


@pytest.fixture
def orders(falaj_store: falaj.Store) -> Orders:
    return Orders(falaj_store)  # a store of this test's own, closed after it


def test_orders_are_numbered_from_zero(orders: Orders) -> None:
    orders.place("ann", 3)
    orders.place("bob", 4)
    assert [order.offset for order in orders.topic] == [0, 1]


def test_who_orders_twice_owes_both(orders: Orders) -> None:
    orders.place("ann", 3)
    orders.place("bob", 4)
    orders.place("ann", 5)
    assert (orders.owed_by("ann"), orders.owed_by("eve")) == (8, 0)
