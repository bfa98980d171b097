import pytest

from dsforge.base.errors import DsforgeError
from dsforge.train.batches import in_order, micro_batches
from dsforge.train.samples import Samples, Sources, find_sources, training_samples, validation_samples
from tests.unit.train.conftest import write_corpus


@pytest.fixture
def sets(tmp_path):
    """Three sets of 10, 4 and 7 samples of 4 tokens; the hundreds of a token tell its set."""
    prefixes = []
    for d, samples in enumerate((10, 4, 7)):
        prefix = tmp_path / f"set{d}"
        write_corpus(prefix, [[100 * d + i for i in range(4 * samples + 1)]])
        prefixes.append(prefix)
    return prefixes


def first_tokens(samples: Samples, count: int) -> list[int]:
    return [int(samples.sample(i)[0]) for i in range(count)]


def test_each_set_is_gone_through_before_it_comes_again(sets):
    samples = Samples([(2.0, sets[0]), (1.0, sets[1]), (1.0, sets[2])], 4, seed=3, vocab=300)
    found = first_tokens(samples, 80)
    by_set = [[token for token in found if token // 100 == d] for d in range(3)]
    assert [len(some) for some in by_set] == [40, 20, 20]
    for d, size in enumerate((10, 4, 7)):
        epochs = [by_set[d][at : at + size] for at in range(0, len(by_set[d]) - size + 1, size)]
        everything = [100 * d + 4 * i for i in range(size)]
        assert all(sorted(epoch) == everything for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == len(epochs)  # each in another order


def test_what_a_step_takes_is_the_blend_whatever_the_layout(sets, make_plan):
    sources = Sources(((0.7, sets[0]), (0.3, sets[1])), ())
    taken = []
    for dp, micro in ((1, 2), (2, 2), (4, 1)):
        plan = make_plan(
            batch__global_size=8,
            batch__micro=micro,
            batch__accumulation_steps=8 // (micro * dp),
            batch__seq_len=4,
            layout__dp=dp,
            model__vocab=300,
        )
        samples = training_samples(plan, sources)
        taken.append(
            sorted(
                (sample_id, row)
                for replica in range(dp)
                for (tokens, ids), _ in micro_batches(samples, plan, replica, range(5, 7))
                for sample_id, row in zip(ids.tolist(), tokens.tolist(), strict=True)
            )
        )
    assert taken[0] == taken[1] == taken[2]
    assert taken[0] == [(i, samples.sample(i)[:-1].tolist()) for i in range(40, 56)]


def test_validation_samples_are_the_same_for_every_seed(sets, make_plan):
    sources = Sources(((1.0, sets[0]),), ((1.0, sets[1]), (1.0, sets[2])))
    judged, trained = set(), set()
    for seed in (1, 2):
        plan = make_plan(train__seed=seed, batch__seq_len=4, model__vocab=300)
        judged.add(tuple(first_tokens(validation_samples(plan, sources), 8)))
        trained.add(tuple(first_tokens(training_samples(plan, sources), 8)))
    assert len(judged) == 1
    assert len(trained) == 2
    assert {token // 100 for token in judged.pop()} == {1, 2}


def test_the_fingerprint_is_of_every_set(sets):
    def fingerprint(*prefixes):
        return Samples([(1.0, prefix) for prefix in prefixes], 4, seed=0, vocab=300).fingerprint()

    whole = fingerprint(*sets)
    assert fingerprint(*sets) == whole
    assert len({whole, fingerprint(*sets[:2]), fingerprint(*reversed(sets)), fingerprint(sets[0])}) == 4
    tokens = sets[2].with_suffix(".bin")
    tokens.write_bytes(tokens.read_bytes()[:-2] + b"\x01\x00")
    assert fingerprint(*sets) != whole


def test_sources_lie_beside_the_recipe_or_in_the_built_in_corpus(tmp_path, make_plan):
    blend = [{"weight": 2.0, "prefix": "data/a"}, {"weight": 1.0, "prefix": "/abs/b"}]
    found = find_sources(make_plan(data__train=blend, data__valid=blend[:1]), tmp_path, None)
    assert [(w, str(p)) for w, p in found.train] == [(2.0, f"{tmp_path}/data/a"), (1.0, "/abs/b")]
    assert [(w, str(p)) for w, p in found.valid] == [(2.0, f"{tmp_path}/data/a")]
    builtin = find_sources(make_plan(data__train=[], data__builtin_vocab=61), tmp_path, tmp_path / "corpus")
    assert [str(p) for _, p in (*builtin.train, *builtin.valid)] == [
        f"{tmp_path}/corpus",
        f"{tmp_path}/corpus-valid",
    ]


def test_a_micro_batch_that_comes_twice_is_refused_where_it_stands(sets, make_plan):
    plan = make_plan(layout__dp=2, batch__global_size=8, batch__seq_len=4, model__vocab=300)
    samples = training_samples(plan, Sources(((1.0, sets[0]),), ()))
    right = list(micro_batches(samples, plan, 1, range(3, 6)))
    passed = list(in_order(iter(right), plan, 1, first_step=3))
    assert [ids.tolist() for (_, ids), _ in passed] == [
        [26, 27], [30, 31], [34, 35], [38, 39], [42, 43], [46, 47]
    ]  # fmt: skip
    repeated = in_order(iter([*right[:3], right[2], *right[4:]]), plan, 1, first_step=3)
    assert len([next(repeated) for _ in range(3)]) == 3
    with pytest.raises(DsforgeError) as caught:
        next(repeated)
    assert caught.value.code == "DSF809"
    assert caught.value.message == (
        "micro-batch 1 of replica 1 in step 5 holds the samples 34 to 35, the plan has 38 to 39 there"
    )
