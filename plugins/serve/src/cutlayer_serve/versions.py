"""The loaded versions of the active party: a run is loaded next to the old one, and answers switch to it at once."""

from __future__ import annotations

from pathlib import Path

from cutlayer.config import ServeConfig
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.errors import ConfigError
from cutlayer_serve.answering import Batcher
from cutlayer_serve.audit_log import AuditLog
from cutlayer_serve.peers import Peers
from cutlayer_serve.served_model import ServedModel
from cutlayer_serve.trained_party import TrainedParty


class Versions:
    """The versions that are loaded, and the one that answers.

    A request takes the current version once, and is answered by it whatever is switched meanwhile: no answer mixes two.

    Args:
        config: Settings of the service.
        party: Name of the active party.
        audit: Log of the answers.
        peers: The passive parties' streams.
        forgotten: Rows that the party has forgotten.
    """

    def __init__(
        self, config: ServeConfig, party: str, audit: AuditLog, peers: Peers, forgotten: ForgottenRows | None = None
    ) -> None:
        self.config, self.party, self.audit, self._peers, self._forgotten = config, party, audit, peers, forgotten
        self._batchers: dict[str, Batcher] = {}
        self._current = ""

    @property
    def current(self) -> Batcher:
        """The version that answers now."""
        return self._batchers[self._current]

    @property
    def loaded(self) -> tuple[Batcher, ...]:
        """All versions, in the order in which they were loaded."""
        return tuple(self._batchers.values())

    def load(self, path: Path) -> ServedModel:
        """Load a run; the first one answers at once, others after `switch`.

        Raises:
            ConfigError: Its parties are not those of the loaded runs, or the settings do not fit it.
            CutlayerError: The folder holds no finished run of this party.
        """
        return self.add(self.read(path))

    def read(self, path: Path) -> ServedModel:
        """Read a run, which is not loaded yet.

        Raises:
            CutlayerError: As `load`.
        """
        return ServedModel(TrainedParty.open(path, self.party), self.config, self._forgotten)

    def add(self, model: ServedModel) -> ServedModel:
        """Add a loaded run."""
        if self._batchers and {*model.passives} != {*self.current.model.passives}:
            wanted = f"a run with the passive parties {', '.join(self.current.model.passives)}"
            raise ConfigError.expected(wanted, ", ".join(model.passives), "serve it in a process of its own")
        if model.version not in self._batchers:
            config = self.config
            wait, patience = config.batch_ms / 1000, config.deadline_ms / 1000
            batcher = Batcher(model, self._peers, wait, config.batch_rows, patience, self.audit)
            self._batchers[model.version] = batcher
            self._current = self._current or model.version
        return model

    def switch(self, version: str) -> None:
        """Answer all further requests by a loaded version."""
        self._current = version

    def unload(self, version: str) -> None:
        """Forget a version that does not answer; requests under way keep it until they are answered.

        Raises:
            ConfigError: It is not loaded, or is the current one.
        """
        if version == self._current or version not in self._batchers:
            raise ConfigError.expected("a loaded version that is not the current one", ascii(version[:40]))
        del self._batchers[version]

    def width_of(self, party: str, tag: str) -> int | None:
        """Width of a passive party's embedding in the loaded version with this tag; `None` where there is none."""
        for batcher in self._batchers.values():
            if batcher.model.tags.get(party) == tag:
                return batcher.model.widths[party]
        return None
