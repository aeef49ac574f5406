"""Messages, ports, the wire format and the transcript."""

from cutlayer.channel.message import Kind, Message, rows_digest
from cutlayer.channel.port import Port, link

__all__ = ["Kind", "Message", "Port", "link", "rows_digest"]
