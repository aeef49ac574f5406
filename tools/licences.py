"""The software that an installation of Cutlayer contains, with its licences, as a CycloneDX 1.6 document.

Run `python -m tools.licences [EXTRA ...] [--out FILE]` in the environment whose software is to be listed: the package's
requirements, those of the named extras, and all that they require, at the installed versions. Tools that happen to be
installed next to them are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "cutlayer"
UNKNOWN = "unknown"


@dataclass
class Installed:
    """A distribution, and the normal names of those that it requires here."""

    distribution: Distribution
    needs: set[str] = field(default_factory=set)


def installed(extras: Sequence[str]) -> dict[str, Installed]:
    """Everything that the package with these extras requires, by normal name, itself included.

    Raises:
        SystemExit: A requirement is not installed.
    """
    found: dict[str, Installed] = {}
    waiting = [(ROOT, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        try:
            entry = found.setdefault(name, Installed(distribution(name)))
        except PackageNotFoundError:
            sys.exit(f"expected {name} to be installed, got none; install cutlayer with its extras first")
        more = {(canonicalize_name(each.name), frozenset(each.extras)) for each in required(entry.distribution, wanted)}
        entry.needs |= {needed for needed, _ in more} - {name}
        waiting.extend(more - seen)
        seen |= more
    return dict(sorted(found.items()))


def required(of: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """Requirements of a distribution that apply on this machine, with extras."""
    for text in of.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield requirement


def licences(of: Distribution) -> list[str]:
    """The licence that a distribution states: an SPDX expression, else its classifiers, else a short text."""
    if "License-Expression" in of.metadata:
        return [of.metadata["License-Expression"]]
    classifiers = of.metadata.get_all("Classifier") or []
    named = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    text = of.metadata["License"].strip().partition("\n")[0] if "License" in of.metadata else ""
    return [name for name in named if name != "OSI Approved"] or [text or UNKNOWN]


def component(of: Distribution) -> dict[str, Any]:
    """The entry of a distribution."""
    name = canonicalize_name(of.metadata["Name"])
    reference = f"pkg:pypi/{name}@{of.version}"
    stated: list[dict[str, Any]] = [{"license": {"name": text}} for text in licences(of)]
    if "License-Expression" in of.metadata:
        stated = [{"expression": of.metadata["License-Expression"]}]
    entry = {"bom-ref": reference, "type": "library", "name": name, "version": of.version, "purl": reference}
    return {**entry, "licenses": stated}


def document(found: Mapping[str, Installed]) -> dict[str, Any]:
    """The bill of materials: components, and which requires which."""
    components = {name: component(entry.distribution) for name, entry in found.items()}
    references = {name: entry["bom-ref"] for name, entry in components.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**components.pop(ROOT), "type": "application"}},
        "components": list(components.values()),
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[needed] for needed in entry.needs)}
            for name, entry in found.items()
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the document, and list packages whose licence is unknown on standard error."""
    parser = argparse.ArgumentParser(prog="python -m tools.licences", description=__doc__.partition("\n")[0])
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="extras of cutlayer, such as serve")
    parser.add_argument("--out", type=Path, help="file to write; standard output by default")
    parser.add_argument("--list", action="store_true", help="print names, versions and licences as lines instead")
    options = parser.parse_args(arguments)
    found = installed(options.extras)
    if options.list:
        text = "".join(
            f"{name} {each.distribution.version}: {', '.join(licences(each.distribution))}\n"
            for name, each in found.items()
        )
    else:
        text = json.dumps(document(found), indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    unknown = [name for name, each in found.items() if licences(each.distribution) == [UNKNOWN]]
    if unknown:
        sys.stderr.write(f"licence not stated by: {', '.join(unknown)}\n")


if __name__ == "__main__":
    main()
