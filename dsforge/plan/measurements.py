"""Files that `dsforge tune` wrote, as far as plans use them."""

from __future__ import annotations

from typing import Any

from dsforge.base.errors import DsforgeError
from dsforge.records.layer_times import LayerTimes, parse_layer_times


def layer_times(data: Any) -> LayerTimes:
    """Return the times in parsed JSON; DsforgeError DSF798 when it holds none."""
    try:
        return parse_layer_times(data)
    except ValueError as error:
        hint = "`dsforge tune --layers RECIPE` measures and writes them"
        raise DsforgeError("DSF798", f"the file of layer times {error}", hint=hint) from None
