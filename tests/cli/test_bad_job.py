"""What can be wrong with a job file: every fault is named with its place, and nothing is written."""

from __future__ import annotations

import pytest

from cutlayer.jobs import preflight
from tests.cli.jobs import JOB, Place, as_yaml

BANK = "parties.bank"
TELCO = "parties.telco"

MISSPELT = [
    ({"trian": {}}, "job.yaml:19: trian: unknown key; did you mean 'train'?"),
    ({f"{BANK}.labl": "x"}, "parties.bank.labl: unknown key; did you mean 'label'?"),
    ({f"{BANK}.privacy": {"label_dp": {"epss": 1}}}, "parties.bank.privacy.label_dp.epss: unknown key; did you mean"),
    ({f"{BANK}.audit": {"atacks": []}}, "parties.bank.audit.atacks: unknown key; did you mean 'attacks'?"),
    (
        {f"{BANK}.table": {"path": "bank.csv", "delimeter": ","}},
        "table.delimeter: unknown key; did you mean 'delimiter'",
    ),
    ({f"{BANK}.features": {"inclued": "all"}}, "features.inclued: unknown key; did you mean 'include'?"),
    (
        {f"{BANK}.features": {"numbers": {"transfrom": "log1p"}}},
        "numbers.transfrom: unknown key; did you mean 'transform'",
    ),
    (
        {f"{TELCO}.features": {"categories": {"max_code": 3}}},
        "categories.max_code: unknown key; did you mean 'max_codes'",
    ),
    (
        {f"{BANK}.audit": {"fail_above": {"label_acu": 0.6}}},
        "fail_above.label_acu: unknown key; did you mean 'label_auc'",
    ),
    ({"model.botom": {}}, "model.botom: unknown key; did you mean 'bottom'?"),
    ({"model.bottom": {"kind": "mlp", "hiden": [4]}}, "model.bottom (bank).hiden: unknown key; did you mean 'hidden'?"),
    ({"model.top": {"kind": "mpl"}}, "model.top.kind: unknown kind 'mpl'; did you mean 'mlp'?"),
    ({"model.top": {"kind": ["mlp"]}}, "model.top.kind: unknown kind ['mlp']; "),
    ({"model.bottom": {"kind": {"mlp": None}}}, "model.bottom (bank).kind: unknown kind {'mlp': None}; "),
    (
        {"model.bottom": {"bank": "linear", "telco": "linear"}},
        "expected keys and values at model.bottom.bank, got 'linear'; write {kind: linear}",
    ),
    (
        {"model.bottom": {"bank": {"kind": "mlp"}, "telco": None}},
        "expected keys and values at model.bottom.telco, got None; write {kind: mlp}",
    ),
    ({"model.cut_depth": 1}, "model.cut_depth: unknown key"),
    ({"train.epoch": 1}, "train.epoch: unknown key; did you mean 'epochs'?"),
    ({"train.optimizer": {"lrr": 1}}, "train.optimizer.lrr: unknown key; did you mean 'lr'?"),
    ({"train.split": {"tset": 0.1}}, "train.split.tset: unknown key; did you mean 'test'?"),
    ({"train.early_stop": {"patiense": 1}}, "train.early_stop.patiense: unknown key; did you mean 'patience'?"),
    (
        {"compare": ["undefend"]},
        "compare.0: expected 'centralised', 'alone', 'undefended', 'each', 'uncompressed', 'retrained', 'finetuned' or "
        "'boosting', got 'undefend'",
    ),
    (
        {"task": "binry"},
        "expected task as one of binary, multiclass, regression, count, amount, severity, survival, ranking, "
        "got 'binry'; did you mean 'binary'?",
    ),
    ({f"{BANK}.privacy": {"max_nrom": None}}, "parties.bank.privacy.max_nrom: unknown protection; did you mean"),
    (
        {f"{BANK}.privacy": {"party_dropout": {"rate": {"tleco": 0.1}}}},
        "privacy.party_dropout.rate.tleco: no passive party of that name; did you mean 'telco'?",
    ),
    ({f"{BANK}.audit": {"attacks": ["nrom"]}}, "audit.attacks: unknown attack 'nrom'; did you mean 'norm'?"),
]

OUT_OF_RANGE = [
    ({f"{BANK}.features": {"categories": {"min_count": 10**12}}}, "min_count: expected less than or equal to 2"),
    ({f"{BANK}.privacy": {"iso_noise": {"ratio": 1e300}}}, "iso_noise.ratio: expected less than or equal to 1000000"),
    ({f"{BANK}.privacy": {"noisy_gradient": {"scale": 1e300}}}, "noisy_gradient.scale: expected less than or equal to"),
    ({"train.epochs": 0}, "train.epochs: expected 'auto' or greater than or equal to 1, got 0"),
    ({"train.epochs": 10**9}, "train.epochs: expected 'auto' or less than or equal to 10000, got 1000000000"),
    ({"train.epochs": "two"}, "train.epochs: expected 'auto' or a whole number, got 'two'"),
    ({"train.batch_size": 0}, "train.batch_size: expected 'auto' or greater than or equal to 1, got 0"),
    ({"train.batch_size": 2.5}, "train.batch_size: expected 'auto' or a whole number, got 2.5"),
    ({"train.seed": -1}, "train.seed: expected greater than or equal to 0, got -1"),
    ({"train.threads": 0}, "train.threads: expected 'auto' or greater than or equal to 1, got 0"),
    ({"train.precision": "bf61"}, "train.precision: expected 'float32' or 'bf16', got 'bf61'; did you mean 'bf16'?"),
    ({f"{BANK}.device": "gpu"}, "parties.bank.device: expected 'auto', 'cpu' or 'cuda' or text of the form"),
    ({"train.device": "cuda"}, "train.device: unknown key"),
    ({"train.optimizer": {"lr": -1}}, "train.optimizer.lr: expected greater than 0, got -1"),
    ({"train.optimizer": {"lr": float("nan")}}, "train.optimizer.lr: expected a finite number, got nan"),
    ({"train.optimizer": {"momentum": 0.9}}, "train.optimizer: expected momentum with kind sgd alone, got adam"),
    ({"train.split": {"test": 1.5}}, "train.split.test: expected less than 1, got 1.5"),
    (
        {"train.split": {"test": 0.5, "validation": 0.5}},
        "train.split: expected test + validation below 1, got 1; the rest trains",
    ),
    (
        {"train.split": {"test": 0, "validation": 0}},
        "train: expected split.test or split.validation above 0, got 0 for both; metrics need held-out rows",
    ),
    (
        {"train.early_stop": {"patience": 2}, "train.split": {"validation": 0}},
        "train: expected split.validation above 0 with early_stop, got 0; set it, or drop early_stop",
    ),
    ({f"{TELCO}.features": {"categories": {"max_codes": 10**9}}}, "max_codes: expected less than or equal to 16777216"),
    (
        {f"{TELCO}.features": {"include": ["a5..b2"]}},
        "features.include: expected a range such as I1..I13, got 'a5..b2'",
    ),
    ({f"{BANK}.privacy": {"label_dp": {"eps": -1.0}}}, "label_dp.eps: expected greater than or equal to 0, got -1.0"),
    ({f"{BANK}.privacy": {"label_dp": {"eps": float("inf")}}}, "label_dp.eps: expected a finite number, got inf"),
    ({f"{BANK}.privacy": {"label_dp": None}}, "parties.bank.privacy.label_dp.eps: missing"),
    ({f"{BANK}.privacy": ["max_norm"]}, "parties.bank.privacy: expected keys and values, got ['max_norm']"),
    ({f"{BANK}.audit": {"fail_above": {"label_auc": 7}}}, "label_auc: expected less than or equal to 1, got 7"),
    ({f"{BANK}.audit": {"fail_above": {"label_auc": 0.5}}}, "label_auc: expected greater than 0.5, got 0.5"),
    (
        {f"{BANK}.audit": {"fail_above": {"label_auc": 0.6}, "every": "never"}},
        "expected every: epoch or end with fail_above, got never; a gate is on the largest leak of all epochs",
    ),
    ({f"{BANK}.audit": {"fail_above": {"label_auc": 0.6}, "every": 2}}, "every: epoch or end with fail_above, got 2"),
    ({f"{BANK}.audit": {"every": 0}}, "expected 'epoch', 'end' or 'never' or greater than or equal to 1, got 0"),
    (
        {f"{BANK}.audit": {"attacks": "norm"}},
        "parties.bank.audit.attacks: expected 'auto' or 'full' or a list, got 'norm'",
    ),
    ({f"{BANK}.audit": {"attacks": ["norm", "norm"]}}, "audit.attacks: norm is named twice; keep one"),
    ({"model.bottom": {"kind": "mlp", "hidden": []}}, "hidden: expected a list of 1 or more, got []"),
    ({"model.bottom": {"kind": "mlp", "hidden": [0]}}, "hidden.0: expected greater than or equal to 1, got 0"),
    ({"model.top": {"kind": "mlp", "hidden": [-3]}}, "hidden.0: expected greater than or equal to 1, got -3"),
    ({"model.bottom": {"kind": "mlp", "hidden": [10**12]}}, "hidden.0: expected less than or equal to 65536"),
    ({"model.bottom": {"kind": "mlp", "embedding": 0}}, "embedding: expected greater than or equal to 1, got 0"),
    (
        {"model.top": {"kind": "python", "path": "nope"}},
        "model.top.path: expected a path as package.module:Class, got 'nope'",
    ),
    ({"model": "mlp"}, "model: expected keys and values, got 'mlp'"),
    (
        {"model.bottom": {"hidden": [3]}},
        "model.bottom with a kind, or with a model for each party, got none for bank, telco",
    ),
    ({"model.bottom": {"bank": {"kind": "mlp"}, "telcoo": {"kind": "mlp"}}}, "unknown telcoo; did you mean 'telco'?"),
    ({"name": 5}, "name: expected text, got 5; put it in quotes"),
]

PARTIES = [
    (
        {f"{BANK}.role": "activ"},
        "parties.bank.role: expected 'active' or 'passive', got 'activ'; did you mean 'active'?",
    ),
    ({f"{TELCO}.role": "active"}, "job.yaml: expected exactly one party with role active, got bank, telco; the active"),
    ({f"{BANK}.role": "passive"}, "job.yaml: expected exactly one party with role active, got none; the active party"),
    ({"parties": {"bank": JOB["parties"]["bank"]}}, "expected at least one party with role passive, got none"),
    ({"parties": None}, "parties: missing"),
    ({"parties": [1, 2]}, "parties: expected keys and values, got [1, 2]"),
    ({TELCO: None}, "parties.telco: expected keys and values, got nothing"),
    ({f"{TELCO}.label": "usage"}, "expected no parties.telco.label, got usage; only the active party holds labels"),
    ({f"{BANK}.label": None}, "expected parties.bank.label, got none; name the column that holds the labels"),
    ({f"{TELCO}.table": None}, "expected parties.telco.table, got none; name the party's file"),
    ({f"{BANK}.secret": "a\0b"}, "parties.bank.secret: expected the path of a file or folder, got"),
    ({f"{BANK}.secret": "/"}, "parties.bank.secret: expected the path of a file or folder, got '/'"),
    (
        {f"{TELCO}.audit": {"fail_above": {"label_auc": 0.6}}},
        "only the active party, which holds the labels, can measure",
    ),
    (
        {f"{TELCO}.report": {"matters": 0.05}},
        "expected no parties.telco.report.matters at a passive party, which compares no models, got 0.05; set it at",
    ),
    (
        {f"{TELCO}.privacy": {"label_dp": {"eps": 1.0}}},
        "expected parties.telco.privacy.label_dp in the part of the active party, which it protects, got the passive",
    ),
]

TASKS = [
    (
        {"task": "regression", f"{BANK}.audit": {"attacks": ["norm"]}},
        "expected a task of kind binary for the attack norm, got regression; leave it out",
    ),
    (
        {"task": "regression", f"{BANK}.privacy": {"label_dp": {"eps": 1.0}}},
        "expected parties.bank.privacy.label_dp on a task of kind binary or multiclass, got regression; leave it out",
    ),
    (
        {f"{BANK}.audit": {"attacks": [], "fail_above": {"label_auc": 0.6}}},
        "expected an attack that measures what parties.bank.audit.fail_above limits, got none for task binary",
    ),
]


@pytest.mark.parametrize(("changes", "message"), [*MISSPELT, *OUT_OF_RANGE, *PARTIES, *TASKS])
def test_a_wrong_value_is_named_with_its_place(place, changes, message):
    place.change(changes)
    error = place.refused(message)
    assert str(place.folder) + "/bank.csv" not in error, "a message about a key shows no other values of the job"


def test_a_device_that_is_not_there_is_named_before_anything_is_read(place, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    place.change({f"{TELCO}.device": "cuda", f"{TELCO}.table": "none.csv"})
    place.refused("expected parties.telco.device: a device of this machine, got cuda where PyTorch")
    assert "write cpu, or auto" in place.call("run", place.file, "--device", "cuda:1").error
    assert place.call("check", place.file, "--device", "tpu").code == 2
    assert not place.run_folder.exists()


@pytest.mark.parametrize(
    "name", ["a/b", "..", ".hidden", "-x", "tel co", "tälco", "a\\b", "a:b", "", "x" * 65, "kind", "a\nb"]
)
def test_a_party_is_named_so_that_files_can_be(place, name):
    parties = {**JOB["parties"], name: JOB["parties"]["telco"]}
    place.change({"parties": parties})
    error = place.refused("expected a party name of letters a-z, digits, _ - and .")
    assert "\n" not in error.strip()


def test_names_that_modules_cannot_have_are_good_party_names(place):
    names = ("tel.co", "train", "2", "half_a-B")
    partners = dict.fromkeys(names, JOB["parties"]["telco"])
    place.change({"parties": {"bank": JOB["parties"]["bank"], **partners}, "compare": ["centralised"]})
    assert place.call("check", place.file).code == 0
    report = place.call("run", place.file, "--json").document()
    assert [party["name"] for party in report["parties"]] == ["bank", *names]


GOOD = as_yaml(JOB)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "job.yaml: expected keys and values, such as parties:, got nothing"),
        ("# only a comment\n", "got nothing"),
        ("- a\n- b\n", "got a list"),
        ("hello", "got 'hello'"),
        (
            "parties:\n\tbank: {}\n",
            "job.yaml: not YAML: found character '\\t' that cannot start any token, line 2; indent",
        ),
        ("parties: {bank: [", "job.yaml: not YAML: "),
        ("parties: \x00", "job.yaml: not YAML: "),
        (GOOD + "---\n" + GOOD, "not YAML: but found another document"),
        (GOOD + "parties: {}\n", 'job.yaml: found duplicate key "parties", line'),
        ("parties:\n  bank: {role: active}\n  bank: {role: passive}\n", 'duplicate key "bank", line 3; every party'),
        (GOOD + "x: !!python/object/apply:os.system ['true']\n", "apply:os.system', line 19; leave the tag out"),
        (GOOD + "1: 2\n", ": 1: expected a name as text, got 1; put it in quotes"),
        (GOOD.replace("telco:", "7:"), "parties.7: expected a name as text, got 7; put it in quotes"),
    ],
)
def test_what_is_no_job_file(place, text, message):
    place.write(text)
    place.refused(message)


def test_two_faults_are_told_at_once_and_each_with_the_file(place):
    place.change({"trian": {}, "train.epochs": 0})
    first, second = place.refused("trian", "epochs").splitlines()
    assert first.startswith(f"{place.file}:{line_with(place, 'trian')}: trian: unknown key")
    assert second.startswith(f"{place.file}:{line_with(place, 'epochs')}: train.epochs: expected")


def line_with(place: Place, key: str) -> int:
    """Number of the only line of the job file that has a key."""
    (line,) = (number for number, text in enumerate(place.file.read_text().splitlines(), 1) if key in text)
    return line


@pytest.mark.parametrize(
    ("changes", "key", "phrase"),
    [
        ({"train.optimizer": {"lr": -1}}, "lr", "train.optimizer.lr: expected greater than 0, got -1"),
        ({"model.top.hidden": [4, -7]}, "-7", "model.top.hidden.1: expected"),
        ({f"{BANK}.privacy": {"marvel": {}}}, "marvel", f"{BANK}.privacy.marvel: unknown protection"),
        ({"train.class_weight": "balanced", f"{BANK}.weight": "id", "task": "regression"}, "class_weight", "expected"),
        ({f"{TELCO}.fit": {"kind": "pca"}}, "fit", f"expected no {TELCO}.fit but at"),
        ({f"{BANK}.audit": {"attacks": ["nrom"]}}, "nrom", f"{BANK}.audit.attacks: unknown attack 'nrom'"),
        ({"model.bottom": {"kind": "mpl"}}, "mpl", "model.bottom (bank).kind: unknown kind"),
    ],
)
def test_an_error_names_the_line_of_the_key_or_value(place, changes, key, phrase):
    place.change(changes)
    assert f"job.yaml:{line_with(place, key)}: {phrase}" in place.refused(phrase)


def test_of_a_missing_key_the_line_of_the_section(place):
    place.write(
        "name: x\nparties:\n  bank: {role: active, table: bank.csv, id: id, label: default}\n  telco:\n    id: id\n"
    )
    place.refused("job.yaml:4: parties.telco.role: missing")


def test_an_error_of_a_private_file_names_its_own_line(place):
    place.write(as_yaml(JOB))
    (place.folder / "telco.yaml").write_text("table: telco.csv\nid: id\nprivacy:\n  label_dp: {eps: 1}\n")
    result = place.call("check", place.file, "--as", "telco", "--local", "telco.yaml", "--json")
    (problem,) = (check["problem"] for check in result.document()["checks"] if check["name"] == "job")
    assert problem.startswith("telco.yaml:4: expected parties.telco.privacy.label_dp in the part of the active")


def test_a_check_of_one_half_lists_what_each_column_is_taken_for(place, monkeypatch):
    (place.folder / "telco.yaml").write_text("table: telco.csv\nid: id\n")
    monkeypatch.setattr(preflight, "MAX_COLUMNS", 1)
    result = place.call("check", place.file, "--as", "telco", "--local", "telco.yaml", "--json")
    columns = [(check["name"], check["result"]) for check in result.document()["checks"] if "column" in check["name"]]
    assert [name for name, _ in columns] == ["column usage", "columns"]
    assert columns[0][1].startswith("double, taken for a number, ")
    assert columns[1][1].startswith("1 more")


def test_a_file_that_cannot_be_read(place):
    place.file.unlink()
    assert place.refused("job.yaml: cannot be read: No such file or directory").count("job.yaml") == 1
    (place.folder / "jobs.yaml").touch()
    place.refused("job.yaml: cannot be read: No such file or directory; did you mean 'jobs.yaml'?")
    place.file.mkdir()
    place.refused("job.yaml: cannot be read: Is a directory; name a file in it, such as")
    place.file.rmdir()
    place.file.write_bytes(b"name: caf\xe9\n")
    place.refused("job.yaml: expected text in UTF-8, got other bytes")


def test_an_empty_section_is_a_section_without_keys(place):
    empty = dict.fromkeys(("parties.bank.privacy", "parties.bank.audit", "parties.telco.features", "train.split"))
    place.change({**empty, "train.optimizer": None})
    assert place.call("check", place.file).code == 0


def test_control_characters_of_a_name_do_not_reach_the_terminal(place):
    place.write(GOOD + '"tr\\e[31main": 1\n')
    assert "\x1b" not in place.refused(r"'tr\x1b[31main': unknown key")
    place.change({"parties.telco.id": "uid"})
    table = place.folder / "telco.csv"
    table.write_text(table.read_text().replace("id,usage", "i\x1b[31md,usage", 1))
    assert "no column 'uid'; known: i\ufffd[31md, plan, usage" in place.call("run", place.file).error


def test_epsilon_of_zero_is_valid_and_told_once_without_a_line_of_this_program(place):
    place.change({"parties.bank.privacy": {"label_dp": {"eps": 0}}, "train.epochs": 1})
    result = place.call("run", place.file)
    assert result.code == 0
    assert result.err.count("coin flip") == 1
    assert result.err.startswith("warning label_dp at eps 0 is a coin flip")
    assert ".py" not in result.err
    assert "Warning" not in result.err
