from __future__ import annotations

from dsforge.launch.roster import Roster


def test_a_spare_takes_the_number_of_the_host_that_failed():
    left = Roster(("a", "b", "c"), ("s", "t")).without({"b"})
    assert (left.hosts, left.spares, left.failed) == (("a", "s", "c"), ("t",), ("b",))


def test_a_spare_that_is_ill_itself_is_passed_over():
    left = Roster(("a", "b"), ("s", "t")).without({"a", "s"})
    assert (left.hosts, left.spares, left.failed) == (("t", "b"), (), ("s", "a"))


def test_a_host_that_failed_is_taken_again_when_nothing_else_is_left():
    first = Roster(("a", "b"), ("s",)).without({"a"})
    second = first.without({"b"})
    assert (second.hosts, second.spares, second.failed) == (("s", "a"), (), ("b",))
    assert second.without({"s", "a"}).hosts == ("b", "a")


def test_without_a_reserve_a_host_stays():
    assert Roster(("a", "b")).without({"b"}) == Roster(("a", "b"))


def test_a_scheduler_numbers_hosts_in_its_own_order():
    left = Roster(("a", "b"), ("c",), order=("a", "b", "c")).without({"a"})
    assert (left.hosts, left.failed) == (("b", "c"), ("a",))
