from dsforge.records.checkpoint import MANIFEST_NAME
from dsforge.train.sharing import share_of, sizes_of


def test_sizes_of_names_every_file_but_the_manifest(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "weights.pt").write_bytes(b"12345")
    (tmp_path / MANIFEST_NAME).write_text("{}")
    assert sizes_of(tmp_path) == {"state/weights.pt": 5}


def test_shares_hold_every_file_once_and_are_alike():
    sizes = {"a": 1, "b": 9, "c": 9, "d": 5, "e": 4}
    shares = [share_of(sizes, rank, 2) for rank in range(2)]
    assert shares == [["b", "d", "a"], ["c", "e"]]
    assert share_of(sizes, 7, 8) == []
