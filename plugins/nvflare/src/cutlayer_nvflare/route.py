"""How a passive party reaches the active one."""

from enum import StrEnum


class Route(StrEnum):
    """How a passive party reaches the active one: its address, the hub's messages, or the first that answers."""

    AUTO = "auto"
    DIRECT = "direct"
    HUB = "hub"
