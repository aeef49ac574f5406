"""Messages, ports, the wire format and the transcript."""

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.channel.kinds import Kind
    from cutlayer.channel.message import Message, rows_digest
    from cutlayer.channel.port import Port, link
else:
    __getattr__, __dir__ = on_first_use(
        __name__, {"Kind": ".kinds", "Message": ".message", "Port": ".port", "link": ".port", "rows_digest": ".message"}
    )

__all__ = ["Kind", "Message", "Port", "link", "rows_digest"]
