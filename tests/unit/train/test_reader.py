import struct

import numpy as np
import pytest

from dsforge.base.errors import DsforgeError
from dsforge.train.reader import IndexedCorpus, batch_ids, read_index


def test_reads_what_megatron_core_writes(tmp_path):
    datasets = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    documents = [[5, 6, 7, 8], [9, 10], [11, 12, 13, 14, 15]]
    builder = datasets.IndexedDatasetBuilder(str(tmp_path / "corpus.bin"), dtype=np.uint16)
    for document in documents:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(str(tmp_path / "corpus.idx"))

    index = read_index(tmp_path / "corpus.idx")
    assert index.dtype == np.dtype("<u2")
    assert index.lengths.tolist() == [4, 2, 5]
    assert index.positions.tolist() == [0, 8, 12]
    assert index.documents.tolist() == [0, 1, 2, 3]

    corpus = IndexedCorpus(tmp_path / "corpus", seq_len=5, seed=1, vocab=16)
    found = sorted(corpus.sample(i).tolist() for i in range(corpus.samples))
    assert found == [[5, 6, 7, 8, 9, 10], [10, 11, 12, 13, 14, 15]]


def test_megatron_core_reads_the_corpus_of_these_tests(make_corpus):
    datasets = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    prefix = make_corpus([[1, 2, 3], [4, 5]])
    theirs = datasets.IndexedDataset(str(prefix), mmap=True)
    assert [theirs[i].tolist() for i in range(len(theirs))] == [[1, 2, 3], [4, 5]]


@pytest.mark.parametrize(("code", "dtype"), [(1, "<u1"), (3, "<i2"), (4, "<i4"), (5, "<i8"), (8, "<u2")])
def test_every_integer_type(make_corpus, code, dtype):
    prefix = make_corpus([list(range(9))], code=code, dtype=dtype)
    assert IndexedCorpus(prefix, 8, seed=0, vocab=9).sample(0).tolist() == list(range(9))


def test_an_epoch_visits_every_sample_once_and_the_next_in_another_order(make_corpus):
    corpus = IndexedCorpus(make_corpus([list(range(41))]), seq_len=4, seed=3, vocab=41)
    assert corpus.samples == 10
    first = [int(corpus.sample(i)[0]) for i in range(10)]
    second = [int(corpus.sample(i)[0]) for i in range(10, 20)]
    assert sorted(first) == sorted(second) == list(range(0, 40, 4))
    assert first != second
    assert first != sorted(first)


def test_the_order_hangs_on_the_seed_alone(make_corpus):
    prefix = make_corpus([list(range(41))])
    orders = [[int(IndexedCorpus(prefix, 4, seed, 41).sample(i)[0]) for i in range(10)] for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]


def test_the_samples_of_a_step_are_the_same_for_every_layout(make_plan):
    for dp, micro, accumulation in ((1, 2, 4), (2, 2, 2), (4, 1, 2), (8, 1, 1)):
        batch = make_plan(
            batch__global_size=8, batch__micro=micro, batch__accumulation_steps=accumulation
        ).batch
        ids = [
            i
            for replica in range(dp)
            for m in range(accumulation)
            for i in batch_ids(batch, dp, replica, step=5, micro=m)
        ]
        assert sorted(ids) == list(range(40, 48))


def test_replicas_go_once_through_an_epoch_as_distributed_samplers_do(make_corpus, make_plan):
    """Disjoint, complete, and shuffled anew: an epoch of 12 samples is three steps of two replicas."""
    corpus = IndexedCorpus(make_corpus([list(range(49))]), seq_len=4, seed=3, vocab=49)
    assert corpus.samples == 12
    batch = make_plan(batch__global_size=4, batch__micro=1, batch__accumulation_steps=2).batch

    def starts(replica: int, epoch: int) -> list[int]:
        steps = range(3 * epoch, 3 * epoch + 3)
        ids = [i for step in steps for micro in range(2) for i in batch_ids(batch, 2, replica, step, micro)]
        return [int(corpus.sample(i)[0]) for i in ids]

    epochs = [[starts(replica, epoch) for replica in range(2)] for epoch in range(2)]
    for first, second in epochs:
        assert len(first) == len(second) == 6
        assert sorted(first + second) == list(range(0, 48, 4))
    assert epochs[0] != epochs[1]


def code_of(call) -> str:
    with pytest.raises(DsforgeError) as caught:
        call()
    assert caught.value.place.file
    return caught.value.code


def test_faults_name_their_file(make_corpus, tmp_path):
    prefix = make_corpus([list(range(20))])
    index, tokens = prefix.with_suffix(".idx"), prefix.with_suffix(".bin")
    whole_index, whole_tokens = index.read_bytes(), tokens.read_bytes()

    def load(seq_len: int = 4, vocab: int = 20):
        return IndexedCorpus(prefix, seq_len, seed=0, vocab=vocab)

    assert code_of(lambda: load(seq_len=20)) == "DSF324"
    for wrong in (whole_tokens[:-1], whole_tokens + b"\0"):
        tokens.write_bytes(wrong)
        assert code_of(load) == "DSF323"
    tokens.unlink()
    assert code_of(load) == "DSF320"
    tokens.write_bytes(whole_tokens)
    index.write_bytes(b"X" + whole_index[1:])
    assert code_of(load) == "DSF321"
    for wrong in (whole_index[:-1], whole_index + b"\0"):
        index.write_bytes(wrong)
        assert code_of(load) == "DSF322"
    index.unlink()
    assert code_of(load) == "DSF320"


@pytest.mark.parametrize(
    ("lengths", "documents", "word"),
    [
        ((12, -4, 12), (0, 1, 2, 3), "sequence 1 has a length of -4"),
        ((8, 4, 8), (0, 1, 2, 4), "do not span its 3 sequences"),
        ((8, 4, 8), (0, 1, 2, 2), "do not span its 3 sequences"),
        ((8, 4, 8), (1, 1, 2, 3), "do not span its 3 sequences"),
        ((8, 4, 8), (-1, 1, 2, 3), "do not span its 3 sequences"),
        ((8, 4, 8), (), "do not span its 3 sequences"),
        ((8, 4, 8), (0, 2, 1, 3), "document 2 starts at sequence 1"),
        ((8, 4, 8), (0, 9, 2, 3), "document 2 starts at sequence 2"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(tmp_path, lengths, documents, word):
    positions = [2 * sum(lengths[:i]) for i in range(len(lengths))]
    path = tmp_path / "odd.idx"
    path.write_bytes(
        b"MMIDIDX\x00\x00"
        + struct.pack("<QBQQ", 1, 8, len(lengths), len(documents))
        + struct.pack(f"<{len(lengths)}i", *lengths)
        + struct.pack(f"<{len(positions)}q", *positions)
        + struct.pack(f"<{len(documents)}q", *documents)
    )
    with pytest.raises(DsforgeError, match=word) as caught:
        read_index(path)
    assert caught.value.code == "DSF322"


def test_documents_may_be_empty_or_hold_several_sequences(tmp_path):
    path = tmp_path / "fine.idx"
    path.write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ2i2q4q", 1, 8, 2, 4, 3, 0, 0, 6, 0, 0, 2, 2))
    assert read_index(path).documents.tolist() == [0, 0, 2, 2]


def test_the_fingerprint_is_of_the_contents(make_corpus, tmp_path):
    def fingerprint(sequences):
        corpus = IndexedCorpus(make_corpus(sequences), 4, seed=0, vocab=99)
        return corpus.tokens, corpus.fingerprint()

    first = fingerprint([list(range(20))])
    assert first[0] == 20
    assert fingerprint([list(range(20))]) == first
    assert fingerprint([list(range(10)), list(range(10, 20))]) != first  # the same tokens, other documents
    for place in (0, 10, 19):
        changed = list(range(20))
        changed[place] = 98
        assert fingerprint([changed])[1] != first[1]


def test_the_fingerprint_of_much_data_looks_at_head_middle_and_tail(make_corpus):
    tokens = np.zeros(4 << 20, np.uint8)
    prefix = make_corpus([tokens.tolist()], code=1, dtype="<u1")
    seen = set()
    for place in (None, 0, 2 << 20, (4 << 20) - 1):
        if place is not None:
            tokens[place] = 1
        prefix.with_suffix(".bin").write_bytes(tokens.tobytes())
        seen.add(IndexedCorpus(prefix, 4, seed=0, vocab=99).fingerprint())
    assert len(seen) == 4


def test_a_token_outside_the_vocabulary_is_named_with_its_place(make_corpus):
    corpus = IndexedCorpus(make_corpus([[0, 1, 2, 3, 77, 5, 6, 7, 8]]), seq_len=8, seed=0, vocab=64)
    with pytest.raises(DsforgeError, match="token 4 is 77, the model's vocabulary has 64") as caught:
        corpus.sample(0)
    assert caught.value.code == "DSF325"


def test_the_reader_needs_no_engine():
    import subprocess
    import sys

    code = "import sys, dsforge.train.reader; print({'torch', 'deepspeed', 'megatron'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
