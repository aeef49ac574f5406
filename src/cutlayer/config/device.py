"""Where a party trains, and in which precision its models compute."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

DeviceName = Literal["auto", "cpu", "cuda"] | Annotated[str, Field(pattern=r"^cuda:(0|[1-9][0-9]?)$")]
"""`cpu`; `cuda`, the process's current GPU; `cuda:N`, the GPU of that number; `auto`, a GPU where one gains."""

Precision = Literal["float32", "bf16"]
"""Precision of the layers of bottom and top models. Whatever crosses between parties is float32 in both."""
