import pytest

from dsforge.base.errors import DsforgeError
from dsforge.recipe.sections import MonitorSection
from dsforge.records.run_dir import AttemptDir
from dsforge.records.streams import EvalLine, MetricsLine
from dsforge.train.sinks import registry


def test_every_sink_is_a_key_of_the_recipe():
    assert set(registry.SINKS) <= set(MonitorSection.model_fields)


def test_event_files_hold_each_line_at_its_own_step(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    attempt = AttemptDir(tmp_path / "attempt-2")
    (sink,) = registry.open_sinks(("tensorboard",), attempt)
    lines = [MetricsLine(100.0 + step, step, 5.0 / step, 0.5, 1e-3, 1e4, 0.25, 2**30) for step in (21, 22)]
    sink.write(lines[0])
    sink.write(EvalLine(121.5, 21, 4.25, 64, 0.5))
    sink.write(lines[1])

    # Read while the writer is still open: a killed rank closes nothing.
    found = accumulator.EventAccumulator(str(attempt.tensorboard)).Reload()
    assert sorted(found.Tags()["scalars"]) == [
        "memory/peak_bytes",
        "speed/step_seconds",
        "speed/tokens_per_second",
        "train/grad_norm",
        "train/learning_rate",
        "train/loss",
        "validation/loss",
    ]
    losses = [(event.step, event.wall_time, event.value) for event in found.Scalars("train/loss")]
    assert losses == [(21, 121.0, pytest.approx(5 / 21)), (22, 122.0, pytest.approx(5 / 22))]
    assert [(event.step, event.value) for event in found.Scalars("validation/loss")] == [(21, 4.25)]
    assert [event.value for event in found.Scalars("memory/peak_bytes")] == [2**30, 2**30]


def test_a_package_that_is_missing_is_named_before_anything_starts(monkeypatch, tmp_path):
    from dsforge.launch.preflight import look
    from tests.launch_support.bundles import make_bundle
    from tests.launch_support.plans import make_plan

    monkeypatch.setitem(registry.SINKS, "tensorboard", "no_such_package")
    with pytest.raises(DsforgeError, match="package no_such_package is not installed") as caught:
        registry.open_sinks(("tensorboard",), AttemptDir(tmp_path))
    assert (caught.value.code, caught.value.exit_code) == ("DSF306", 3)
    assert "monitor.tensorboard=false" in caught.value.hint
    registry.check_sinks(())

    from dsforge.launch.types import LaunchRequest

    for sinks, refused in ((("tensorboard",), True), ((), False)):
        plan = make_plan().model_copy(update={"sinks": sinks})
        request = LaunchRequest(plan, make_bundle(plan), tmp_path, tmp_path, "tiny.yaml", "", (), {})
        assert ("DSF306" in [refusal.code for refusal in look(request).refusals]) is refused
