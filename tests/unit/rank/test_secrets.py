from __future__ import annotations

import pytest

from dsforge.rank.secrets import take_secrets


def test_every_rank_reads_and_the_last_removes(tmp_path):
    path = tmp_path / "secrets-0"
    path.write_bytes("A=x y=z\0B=\nö'\0".encode())
    wanted = {"A": "x y=z", "B": "\nö'"}
    assert take_secrets(path, 3) == wanted
    assert take_secrets(path, 3) == wanted
    assert path.exists()
    assert take_secrets(path, 3) == wanted
    assert not path.exists()
    with pytest.raises(FileNotFoundError):
        take_secrets(path, 3)
