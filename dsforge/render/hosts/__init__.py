"""The hosts of a run: read strictly, chosen, and written so that the engine reads the planned world."""

from dsforge.render.hosts.hostfile import Hosts, parse_hostfile, render_hosts
from dsforge.render.hosts.world import SPARES_FILE, Gpus, PlaceOf, World, check_hosts, planned_world

__all__ = [
    "SPARES_FILE",
    "Gpus",
    "Hosts",
    "PlaceOf",
    "World",
    "check_hosts",
    "parse_hostfile",
    "planned_world",
    "render_hosts",
]
