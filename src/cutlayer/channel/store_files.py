"""Files of an exchange by a folder of an object store: each party puts its own there, and fetches the others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cutlayer.channel.grpc_files import pieces_of, write_pieces
from cutlayer.errors import ConfigError, CutlayerError, RunFolderError


class StoreCourier:
    """Carries the files of rounds by a folder at an address, by the file systems of fsspec.

    A file has its name by its sender and its number: no listing of others is read. What is fetched is a whole parcel,
    whose signature the exchange checks, as of a folder that all parties see. Credentials are those that the package of
    the store finds.

    Args:
        address: Address of the folder, such as `s3://bucket/exchange`.
        me: Name of this party.
        before: Called before a file leaves; raises `NotApproved` where none may.

    Raises:
        ConfigError: A package is not installed, or the address is none that it knows.
    """

    def __init__(self, address: str, me: str, before: Callable[[], None]) -> None:
        try:
            import fsspec

            self._system, inner = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as missing:
            remedy = "install cutlayer[remote], and s3fs, gcsfs or adlfs for the store"
            raise ConfigError.expected(f"the packages of {address}", _line(missing), remedy) from None
        self._base, self._me, self._before = inner.rstrip("/"), me, before
        self._arrived: set[Path] = set()
        self._why = ""

    def carry(self, folder: Path, wanted: Path | None = None) -> bool:
        """See `Courier.carry`.

        Raises:
            RunFolderError: The store has another file of a name that this party has to give.
            NotApproved: No file may leave.
        """
        own = sorted(folder.glob(f"{self._me}~*.cutlayer"))
        try:
            self._system.invalidate_cache()
            for path in own:
                if path not in self._arrived:
                    self._put(path)
                    self._arrived.add(path)
            if wanted is not None and self._system.exists(self._place(wanted)):
                with self._system.open(self._place(wanted), "rb") as file:
                    write_pieces(wanted, pieces_of(file))
            self._why = ""
        except CutlayerError:
            raise
        except Exception as failure:  # of any library, which has classes of its own
            self._why = _line(failure)
        return self._arrived.issuperset(own)

    def missing_reason(self, peer: str) -> str:
        """See `Courier.missing_reason`."""
        return self._why or f"{peer} has not put it there"

    def finish(self, folder: Path, peers: Sequence[str], wait: float) -> None:
        """Nothing to do: the files stay in the store."""

    def _place(self, path: Path) -> str:
        return f"{self._base}/{path.parent.name}/{path.name}"

    def _put(self, path: Path) -> None:
        place = self._place(path)
        if not self._system.exists(place):
            self._before()
            self._system.put_file(str(path), place)
        elif self._system.size(place) != path.stat().st_size:
            remedy = "take another folder of the store, another --version, or another --round"
            raise RunFolderError.expected(f"no other file at {place}", "one of another exchange", remedy)


def _line(failure: BaseException) -> str:
    lines = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {lines[0][:200]}" if lines else type(failure).__name__
