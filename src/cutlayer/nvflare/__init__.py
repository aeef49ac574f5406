"""Jobs for NVFlare: it starts, aborts and logs the parties of a job, each at its site; tensors take our own links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutlayer.lazy import on_first_use

if TYPE_CHECKING:
    from cutlayer.nvflare.export import ExportedJob, export_job
    from cutlayer.nvflare.route import Route

_MODULES = {"ExportedJob": ".export", "Route": ".route", "export_job": ".export"}

__all__ = ["ExportedJob", "Route", "export_job"]
__getattr__, __dir__ = on_first_use(__name__, _MODULES)
