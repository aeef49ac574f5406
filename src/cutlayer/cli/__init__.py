"""The command line, one file per verb."""

from cutlayer.cli import (  # noqa: F401 (each file registers its verb)
    align,
    audit,
    check,
    demo,
    doctor,
    export,
    init,
    keys,
    ledger,
    list_,
    nvflare,
    party,
    party_predict,
    predict,
    recommend,
    release,
    report,
    run,
    schema,
    serve,
    sweep,
    trail,
)
from cutlayer.cli.app import app, main

__all__ = ["app", "main"]

_EXAMPLES = {
    "demo": "demo --copy mine",
    "init": "init data --labels bank.csv --label default --protect labels --yes",
    "check": "check job.yaml --as telco --local telco.yaml",
    "run": "run job.yaml --out runs/first",
    "party": "party job.yaml --as telco --local telco.yaml --preflight",
    "nvflare": "nvflare job.yaml --out nvflare-job --site bank=site-1 --site telco=site-2",
    "align": "align job.yaml --as telco --local telco.yaml --dry-run",
    "release": "release job.yaml --as telco --local telco.yaml --out telco.release",
    "party_predict": "party predict job.yaml --as bank --local bank.yaml --data new.csv --out scores.parquet",
    "predict": "predict runs/job --data telco=new.csv --out scores.parquet",
    "serve": "serve runs/job --as bank --local bank.yaml",
    "export": "export runs/job --party bank --out part",
    "audit": "audit runs/job --attack spectral --fail-above 0.6",
    "report": "report runs/job --markdown",
    "ledger": "ledger .cutlayer --json",
    "sweep": "sweep job.yaml --vary parties.bank.privacy.label_dp.eps=0.5,1,2",
    "recommend": "recommend job.yaml --max-excess 0.02 --max-loss 0.01 --guarantee eps=2",
    "list_": "list protections",
    "schema": "schema report",
    "doctor": "doctor job.yaml --as telco --local telco.yaml",
    "api_key": "api-key website",
}
"""An example of each verb, in the order of a first day with cutlayer; `--help` lists them so."""

app.registered_commands.sort(key=lambda verb: [*_EXAMPLES].index(getattr(verb.callback, "__name__", "")))

_OF_GROUPS = {
    "keys": {
        "init": "keys init bank --federation credit",
        "invite": "keys invite telco --address bank.example:7070",
        "request": "keys request telco.invite --fingerprint efb1-043a-b396-e2b8-6570-3303-3fed-8936",
        "sign": "keys sign telco.request.pem --fingerprint beb6-9412-3e4d-9aea-78c7-ff4f-b41e-3452",
        "renew": "keys renew telco --days 90",
        "revoke": "keys revoke telco",
        "list": "keys list --json",
    },
    "trail": {
        "verify": "trail verify .cutlayer/telco.key.trail",
        "show": "trail show .cutlayer/telco.key.trail",
    },
}

for _verb in app.registered_commands:
    if _example := _EXAMPLES.get(getattr(_verb.callback, "__name__", "")):
        _verb.epilog = f"Example: cutlayer {_example}"

for _group in app.registered_groups:
    for _verb in _group.typer_instance.registered_commands if _group.typer_instance else ():
        if _name := _verb.name or getattr(_verb.callback, "__name__", ""):
            _verb.epilog = f"Example: cutlayer {_OF_GROUPS[str(_group.name)][_name]}"
