"""The network interface of ranks: by its name, by its network, or found on every host."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field

from dsforge.recipe import patterns
from dsforge.recipe.hinted import HintedError

AUTO = "auto"


def is_found_on_hosts(text: str) -> bool:
    """Tell whether each host has to look for the interface, which may be called otherwise on another."""
    return text == AUTO or "/" in text


def _checked(text: str) -> str:
    if "/" in text:
        network = ipaddress.ip_interface(text).network  # ValueError says what is wrong with it
        if str(network.network_address) != str(ipaddress.ip_interface(text).ip):
            raise HintedError(f"{text} is an address in a network", f"write `{network}`")
    return text


InterfaceText = Annotated[str, Field(strict=True, pattern=patterns.INTERFACE), AfterValidator(_checked)]
"""A name, a network as ADDRESS/BITS, or `auto`."""
