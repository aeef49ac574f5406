"""Noise under a key of its owner: a resume repeats it, nobody else can, and other content gets fresh noise."""

from __future__ import annotations

import json

from cutlayer.kernels.noise.aes import derive, fingerprint, standard_laplace, standard_normal
from cutlayer.kernels.rows.to_device import to_device
from cutlayer.lazy import Tensor


class Noise:
    """Noise that only the owner of the key can repeat.

    Args:
        key: 32 bytes from the operating system; checkpointed privately, so that a resume repeats the noise.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._content_key = derive(key, b"cutlayer content")

    def key(self, *, hook: str, peer: str, step: int, content: Tensor) -> bytes:
        """A key of 32 bytes; the same only for the same hook, peer, step and content.

        Args:
            hook: Protection and purpose of the noise; no two purposes may share one.
            peer: Party that receives what the noise is added to.
            step: Step of the run in which the noise is used.
            content: The protected values; other content gets fresh noise.
        """
        purpose = json.dumps([hook, peer, step, list(content.shape), str(content.dtype)]).encode()
        return derive(self._key, b"cutlayer noise", purpose, fingerprint(self._content_key, content))

    def digest(self, content: Tensor) -> str:
        """A keyed digest of released values, in hexadecimal; equal only for equal numbers of the same shape."""
        shape = json.dumps([list(content.shape), str(content.dtype)]).encode()
        digest = fingerprint(self._content_key, content)
        return derive(self._key, b"cutlayer release", shape, digest, size=16).hex()

    def normal(self, shape: tuple[int, ...], *, hook: str, peer: str, step: int, content: Tensor) -> Tensor:
        """Standard normal float32 numbers, a function of the shape and of the arguments of `key`.

        They are drawn on the CPU, and returned on the device of the content.
        """
        key = self.key(hook=hook, peer=peer, step=step, content=content)
        return to_device(standard_normal(key, b"normal %r" % (shape,), shape), content.device)

    def laplace(self, shape: tuple[int, ...], *, hook: str, peer: str, step: int, content: Tensor) -> Tensor:
        """Laplace float32 numbers of scale 1, a function of the shape and of the arguments of `key`.

        They are drawn on the CPU, and returned on the device of the content.
        """
        key = self.key(hook=hook, peer=peer, step=step, content=content)
        return to_device(standard_laplace(key, b"laplace %r" % (shape,), shape), content.device)
