"""Every published or recomputed figure of model states in tests/data/memory_formula.csv."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from dsforge.cost.offload import GpuAndCpu, zero2_states, zero3_states
from dsforge.cost.states import ADAM, MEGATRON, nominal, state_bytes

_ROWS = list(
    csv.DictReader((Path(__file__).parents[2] / "data" / "memory_formula.csv").open(encoding="utf-8"))
)
_BYTES = {"GB(1e9)": 1e9, "GiB": 2**30, "MiB": 2**20}


def _of(prefix: str) -> list[dict[str, str]]:
    return [row for row in _ROWS if row["id"].startswith(prefix)]


def _id(row: dict[str, str]) -> str:
    return row["id"]


def _wanted(row: dict[str, str]) -> float:
    return float(row["expected"]) * _BYTES[row["unit"]]


def test_every_row_is_asserted_here():
    tried = [
        _of(prefix) for prefix in ("zero-", "ds-doc-z", "ds-doc-t5", "ds-run-", "meg-", "korth-", "bloom-")
    ]
    assert sum(map(len, tried)) == len(_ROWS) == 133


@pytest.mark.parametrize("row", _of("zero-"), ids=_id)
def test_table_1_of_the_zero_paper(row: dict[str, str]):
    states = state_bytes(int(row["params"]), "fp16", int(row["zero_stage"]), int(row["dp"]))
    # The figures are kept to six decimals of a GB.
    assert sum(states.values()) == pytest.approx(_wanted(row), rel=0, abs=520)


def _estimate(row: dict[str, str], parameters: int, layer: int, *, gradients_whole: bool) -> GpuAndCpu:
    gpus = int(row["dp"])
    nodes = max(1, gpus // 8)
    optimizer = "optimizer=cpu" in row["offload"]
    if row["zero_stage"] == "2":
        return zero2_states(
            parameters, gpus // nodes, nodes, offload=optimizer, gradients_whole=gradients_whole
        )
    return zero3_states(
        parameters,
        layer,
        gpus // nodes,
        nodes,
        offload_optimizer=optimizer,
        offload_parameters="param=cpu" in row["offload"],
        zero_init="zero_init=0" not in row["other_inputs"],
    )


def _layer(row: dict[str, str]) -> int:
    found = re.search(r"largest_layer_params=([\d.e]+)", row["other_inputs"])
    return int(float(found[1])) if found else 0


@pytest.mark.parametrize("row", _of("ds-doc-z"), ids=_id)
def test_tables_of_deepspeeds_documentation(row: dict[str, str]):
    states = _estimate(row, int(row["params"]), _layer(row), gradients_whole=True)
    assert round(states.gpu_bytes / 2**30, 2) == float(row["expected"])
    assert round(states.cpu_bytes / 2**30, 2) == float(row["cpu_gib"])


@pytest.mark.parametrize("row", _of("ds-run-"), ids=_id)
def test_estimates_of_deepspeed_0_19_8(row: dict[str, str]):
    states = _estimate(row, int(row["params"]), _layer(row), gradients_whole=False)
    assert round(states.gpu_bytes / 2**30, 6) == float(row["expected"])
    assert round(states.cpu_bytes / 2**30, 4) == float(row["cpu_gib"])


@pytest.mark.parametrize("row", _of("ds-doc-t5"), ids=_id)
def test_the_worked_example_of_deepspeeds_documentation(row: dict[str, str]):
    case = row["id"][-1]
    states = zero3_states(
        int(row["params"]),
        32_900_000,
        int(row["dp"]),
        1,
        offload_optimizer=case != "1",
        offload_parameters=case == "2",
    )
    # The inputs are printed to 10,000 parameters.
    assert states.gpu_bytes / 2**20 == pytest.approx(float(row["expected"]), abs=1)


@pytest.mark.parametrize("row", _of("meg-"), ids=_id)
def test_megatrons_distributed_optimizer(row: dict[str, str]):
    _, _, precision, degree = row["id"].split("-")
    dp = None if degree == "none" else int(row["dp"])
    assert MEGATRON[precision].bytes_per_parameter(dp) == float(row["expected"])


@pytest.mark.parametrize("row", _of("korth-"), ids=_id)
def test_figure_1_of_korthikanti(row: dict[str, str]):
    # Korthikanti et al. 2022 count 12 h^2 parameters a layer, and 18 bytes each.
    layers, hidden = int(row["layers"]), int(row["hidden"])
    parameters = 12 * hidden**2 * layers // (int(row["tp"]) * int(row["pp"]))
    assert parameters * MEGATRON["bf16"].bytes_per_parameter(None) == _wanted(row)


@pytest.mark.parametrize("row", _of("bloom-"), ids=_id)
def test_checkpoints_of_bloom(row: dict[str, str]):
    parameters = int(row["params"])
    weights = parameters * ADAM["bf16"].parameters
    whole = nominal(parameters, "bf16", tp=1, pp=1).model_state_bytes
    stored = weights if row["id"] == "bloom-ckpt-bf16" else whole
    # Printed with the last digit cut off.
    assert stored / 2**30 == pytest.approx(float(row["expected"]), abs=0.01)


def test_the_installed_estimators_say_the_same():
    stage3 = pytest.importorskip("deepspeed.runtime.zero.stage3")
    stage2 = pytest.importorskip("deepspeed.runtime.zero.stage_1_and_2")
    for gpus, nodes in ((8, 1), (8, 4), (4, 3), (1, 1)):
        for offload in (False, True):
            ours = zero2_states(6_738_415_616, gpus, nodes, offload=offload)
            theirs = stage2.estimate_zero2_model_states_mem_needs(6_738_415_616, gpus, nodes, offload)
            assert (ours.cpu_bytes, ours.gpu_bytes) == theirs
        for optimizer, parameters in ((False, False), (True, False), (True, True)):
            for zero_init in (False, True):
                ours = zero3_states(
                    6_738_415_616,
                    131_072_000,
                    gpus,
                    nodes,
                    offload_optimizer=optimizer,
                    offload_parameters=parameters,
                    zero_init=zero_init,
                )
                cpu, gpu, _ = stage3.estimate_zero3_model_states_mem_needs(
                    6_738_415_616, 131_072_000, gpus, nodes, optimizer, parameters, zero_init
                )
                assert ours.gpu_bytes == gpu
                assert ours.cpu_bytes == pytest.approx(cpu, abs=1)
