"""Parameters of the MLP of one layer, dense or of experts, whole or on one tensor-parallel rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsforge.layout.shape import Shape


def mlp_parameters(shape: Shape, width: int, tp: int = 1) -> int:
    """Return parameters that one of `tp` ranks holds of an MLP of this width.

    The input matrices are split by columns, the output by rows (Shoeybi et al. 2019, section 3); the
    output's bias is added after the reduction and stands on every rank.
    """
    share = -(-width // tp)
    inputs = 2 if shape.traits.gated else 1
    biases = inputs * share + shape.hidden if shape.traits.mlp_bias else 0
    return (inputs + 1) * shape.hidden * share + biases


def layer_mlp(shape: Shape, layer: int, tp: int = 1, ep: int = 1) -> dict[str, int]:
    """Return parameters of one layer's MLP by component; the router stands whole on every rank.

    TP splits every expert, unless EP deals them out: a rank then has 1 / EP of them, whole.
    """
    experts = shape.experts
    if experts is None or layer in experts.dense_layers:
        return {"mlp": mlp_parameters(shape, shape.ffn_hidden, tp)}
    counts = {
        "router": experts.count * (shape.hidden + experts.router_bias),
        "experts": experts.count // ep * mlp_parameters(shape, experts.ffn_hidden, tp if ep == 1 else 1),
    }
    if experts.shared_ffn_hidden:
        shared = mlp_parameters(shape, experts.shared_ffn_hidden, tp)
        counts["shared_expert"] = shared + shape.hidden * experts.shared_gate
    return counts


def idle_parameters(shape: Shape) -> int:
    """Return parameters of the routed experts that one token does not pass through, over all layers."""
    experts = shape.experts
    if experts is None:
        return 0
    idle = experts.count - experts.active
    return idle * mlp_parameters(shape, experts.ffn_hidden) * (shape.layers - len(experts.dense_layers))
