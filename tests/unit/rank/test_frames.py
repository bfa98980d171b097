from __future__ import annotations

import json

import pytest

from dsforge.rank.frames import from_faulthandler, from_py_spy
from dsforge.records.stacks import Frame

FAULTHANDLER = """\
Thread 0x00007f1c0b7fe6c0 (most recent call first):
  File "/lib/queue.py", line 140 in put
  File "/src/dsforge/train/batches.py", line 46 in work

Current thread 0x00007f1c2ad1b740 (most recent call first):
  File "/src/odd, "name", line 3 in x.py", line 88 in read
  File "/src/dsforge/train/run.py", line 157 in <module>
"""


def test_the_oldest_thread_is_the_main_one_for_faulthandler():
    helper, main = from_faulthandler(FAULTHANDLER)
    assert (helper.is_main, main.is_main) == (False, True)
    assert main.frames == (
        Frame("read", '/src/odd, "name", line 3 in x.py', 88),
        Frame("<module>", "/src/dsforge/train/run.py", 157),
    )
    assert [frame.line for frame in helper.frames] == [140, 46]


def test_a_list_that_was_cut_has_no_main_thread():
    assert not any(thread.is_main for thread in from_faulthandler(f"{FAULTHANDLER}...\n"))


def test_threads_of_later_pythons_have_names():
    (thread,) = from_faulthandler(
        'Thread 0x7f [worker] (most recent call first):\n  File "a.py", line 1 in f\n'
    )
    assert thread.name == "worker"


def spied(**changes):
    call = {"name": "read", "filename": "/src/reader.py", "line": 88}
    thread = {"thread_id": 1, "os_thread_id": 7, "thread_name": "MainThread", "frames": [call]}
    return json.dumps([{**thread, **changes}])


@pytest.mark.parametrize(
    ("changes", "is_main"),
    [
        ({}, True),
        ({"thread_name": None}, True),
        # As it numbers threads of another namespace.
        ({"os_thread_id": 1007}, True),
        ({"os_thread_id": 8, "thread_name": "data"}, False),
    ],
)
def test_py_spy_tells_the_main_thread_by_its_number_or_name(changes, is_main):
    (thread,) = from_py_spy(spied(**changes), 7)
    assert thread.is_main is is_main
    assert thread.frames == (Frame("read", "/src/reader.py", 88),)


@pytest.mark.parametrize("text", ["", "Error: no", "{}", '[{"thread_name": 1}]', "[3]"])
def test_anything_else_is_no_stack(text):
    with pytest.raises(ValueError, match=r"not what py-spy says|Expecting value"):
        from_py_spy(text, 7)
