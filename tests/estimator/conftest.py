from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cutlayer.attacks import HistoryAttack
from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.jobs import audit
from cutlayer.report import build
from cutlayer.results.audit import RunAudit
from cutlayer.serving import models
from cutlayer.training.trained import Run


@pytest.fixture(scope="module", autouse=True)
def _fits_are_not_audited() -> Iterator[None]:
    """An estimator can only name attacks on labels: to attack the columns of every fit takes a tenth of its time.

    What comes before no attack, and to look whether files of a moment ago were changed, takes as long.
    """
    history = audit.audit_history

    def asked(run: Run, label: str, found: RunAudit, attacks: Sequence[HistoryAttack], own: Any) -> RunAudit:
        return history(run, label, found, attacks, own) if attacks else found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit, "audit_features", lambda *_: AttackAudit())
        patched.setattr(audit, "audit_history", asked)
        patched.setattr(models, "warn_of_changes", lambda *_: None)
        patched.setattr(build, "compare_files", lambda *_: None)
        yield
