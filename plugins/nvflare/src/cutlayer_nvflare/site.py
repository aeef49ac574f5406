"""Agreement of a site: its own copy of the job, next to its private file, in its NVFlare folder.

    KIT/local/cutlayer/NAME/job.yaml     the shared job, as `cutlayer nvflare` wrote it
    KIT/local/cutlayer/NAME/party.yaml   this organisation's private file
    KIT/local/cutlayer/NAME/noise.key    a key for all noise and initial weights, if runs are to be repeatable
    KIT/local/cutlayer/NAME/runs/ID      run folder of a job, with the log of its party

A job that anyone submits runs only if it is this one: neither the submitter nor the hub can change it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cutlayer.channel.tls.files import CertificateFiles, Credentials
from cutlayer.channel.tls.names import fingerprint
from cutlayer.config import Job
from cutlayer.config.identities import COMMON_NAME
from cutlayer.config.load import load_closed_job
from cutlayer.errors import ConfigError
from cutlayer_nvflare.export import SHARED_JOB

FOLDER = "cutlayer"
PRIVATE = "party.yaml"
KEY = "noise.key"
RUNS = "runs"
_MAX_NAMED = 8
"""Maximum number of differences whose keys are named to the server."""


@dataclass(frozen=True)
class AgreedJob:
    """A job that a site takes part in.

    Attributes:
        folder: The site's folder for it.
        job: The site's own copy.
        party: Which party of it the site is.
        kit: Folder `startup` of the NVFlare kit.
    """

    folder: Path
    job: Job
    party: str
    kit: Path

    @property
    def is_active(self) -> bool:
        """Whether the site is the active party."""
        return self.party == self.job.active

    def site_of(self, party: str) -> str:
        """The NVFlare site of a party."""
        return self.job.identities[party].removeprefix(COMMON_NAME)

    def credentials(self) -> Credentials:
        """The startup kit's certificate files.

        Raises:
            TrustError: One of them cannot be used.
        """
        return Credentials(CertificateFiles(self.kit / "rootCA.pem", self.kit / "client.crt", self.kit / "client.key"))

    def fingerprint(self) -> str:
        """Fingerprint of the site's certificate."""
        return fingerprint(self.credentials().current().certificate)

    def run_folder(self, run: str) -> Path:
        """Run folder of an NVFlare job."""
        return self.folder / RUNS / run

    def arguments(self, run: Path, *, resume: bool, address: str | None, reconnect: float) -> list[str]:
        """Arguments of `cutlayer` that run the party."""
        options = {
            "--as": self.party,
            "--local": str(self.folder / PRIVATE),
            "--out": str(run),
            "--kit": str(self.kit),
            "--reconnect": f"{reconnect:g}",
            **({"--address": address} if address else {}),
            **({"--key": str(self.folder / KEY)} if (self.folder / KEY).is_file() else {}),
        }
        words = [word for pair in options.items() for word in pair]
        return ["party", str(self.folder / SHARED_JOB), *words, "--json", *(["--resume"] if resume else [])]


def agreed_job(local: Path, kit: Path, name: str, submitted: Path, site: str) -> AgreedJob:
    """The job that a site has agreed to, if the submitted one is the same.

    Args:
        local: Folder `local` of the site.
        kit: Folder `startup` of the site.
        name: Name of the job.
        submitted: The job file that was submitted.
        site: Name of the site.

    Raises:
        ConfigError: The site has no such job, it is another one, or it names no party for the site.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", name):  # the hub chose it
        raise ConfigError.expected("the name of a job", ascii(name[:80]))
    folder = local / FOLDER / name
    for file in (SHARED_JOB, PRIVATE):
        if not (folder / file).is_file():
            wanted = f"{FOLDER}/{name}/{file} in the site's folder local"
            raise ConfigError.expected(wanted, "none", f"{site} runs only what it put there")
    agreed, other = load_closed_job(folder / SHARED_JOB), load_closed_job(submitted)
    if differing := _differences(agreed, other):
        # The submitter, and the server that reads this, need not be parties: they get the keys, the site's log all.
        keys = ", ".join([*dict.fromkeys(map(_key, differing))][:_MAX_NAMED])
        failure = ConfigError(f"other job than the one {site} agreed to, which differs in {keys}; see the site's log")
        failure.add_note(f"compared with the submitted job: {'; '.join(differing)}")
        raise failure
    party = next((name for name, stated in agreed.identities.items() if stated == f"{COMMON_NAME}{site}"), None)
    if party is None:
        raise ConfigError.expected(f"a party with identity {COMMON_NAME}{site} in the job", "none")
    return AgreedJob(folder, agreed, party, kit)


def _key(difference: str) -> str:
    """The key of a difference, without the names of parties, which are values too."""
    key = difference.partition(": ")[0]
    return key.partition(".")[0] if key.startswith(("parties.", "identities.")) else key


def _differences(agreed: Job, submitted: Job) -> list[str]:
    if agreed.digest() == submitted.digest() and agreed.identities == submitted.identities:
        return []
    from cutlayer.channel.contract import differences  # loads the tensor library, which this process does not need

    here, there = ({**job.shared(), "identities": job.identities} for job in (agreed, submitted))
    return list(differences(here, there)) or ["order of parties"]
