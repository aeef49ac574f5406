"""Which leak a sweep minimises."""

from enum import StrEnum


class LeakKind(StrEnum):
    """Messages whose leak a sweep minimises."""

    ALL = "all"
    GRADIENT = "gradient"
    EMBEDDING = "embedding"

    @property
    def messages(self) -> tuple[str, ...]:
        """The kinds of message."""
        return ("gradient", "embedding", "part", "label") if self is LeakKind.ALL else (str(self),)
