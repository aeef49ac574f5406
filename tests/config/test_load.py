"""Job and party files: what is read is what is written back, and what the parties compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from cutlayer import demo
from cutlayer.config import Job, PrivatePart
from cutlayer.config.lines import MAX_BYTES
from cutlayer.config.load import dump_job, load_job, load_private_part, read_yaml, with_private_part
from cutlayer.consent import allowed
from cutlayer.errors import ConfigError


@pytest.fixture(autouse=True)
def _every_path():
    """The files here are this user's own, wherever they are; tests of consent have a file of their own."""
    with allowed(paths=["/"]):
        yield


SHORT = """
parties:
  bank: {role: active, table: bank.csv, id: id, label: default}
  telco: {role: passive, table: sub/telco.parquet, id: id}
"""

LONG = """
name: "2026"
task: multiclass
parties:
  bank:
    role: active
    address: "127.0.0.1:7070"
    table: {path: ../bank.tsv, format: csv, delimiter: "\\t", columns: [id, y, "I1..I3"], missing: ["", "-"]}
    id: id
    label: y
    secret: keys/bank.key
    features: {include: ["I1..I3"], exclude: [I2], categorical: [I1], numbers: {transform: log1p, missing: zero}}
    privacy: {label_dp: {eps: 1}, max_norm: }
    audit: {attacks: [], every: end, rows: 100, layers: false, max_megabytes: 3}
  telco: {role: passive, table: /data/telco.csv, id: "@row", privacy: , audit: {attacks: auto}}
  mill: {role: passive}
model:
  bottom: {bank: {kind: mlp}, telco: {kind: wide_deep, hidden: [3]}, mill: {kind: python, path: "a.b:C", args: {n: 1}}}
  top: {kind: mlp, hidden: []}
train:
  epochs: 7
  batch_size: 33
  optimizer: {kind: sgd, lr: 0.1, momentum: 0.5}
  seed: 9
  threads: 2
  shuffle: blocks
  split: {test: 0.25, validation: 0.125}
  early_stop: {patience: 2, min_delta: 0.001}
  keep: last
compare: [undefended, each]
"""


def written(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("text", [SHORT, LONG])
def test_a_job_written_back_is_the_same_job(tmp_path, text):
    job = load_job(written(tmp_path, text))
    again = load_job(written(tmp_path, dump_job(job), "again.yaml"))
    assert again == job
    assert list(again.parties) == list(job.parties), "their order is the order of the embeddings"
    assert dump_job(again) == dump_job(job)
    assert again.digest() == job.digest()


def test_the_demo_and_the_examples_survive_too(tmp_path):
    examples = (Path(__file__).parents[2] / "examples").glob("*.yaml")
    for path in (demo.FOLDER / "job.yaml", *sorted(examples)):
        job = load_job(path)
        assert load_job(written(tmp_path, dump_job(job))) == job, path.name


def test_what_is_left_at_its_default_is_not_written(tmp_path):
    text = dump_job(load_job(written(tmp_path, SHORT)))
    assert "train" not in text
    assert "privacy" not in text


def test_paths_are_relative_to_the_folder_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    path = written(tmp_path / "jobs", LONG)
    monkeypatch.chdir(tmp_path)
    for given in (path, Path("jobs/job.yaml"), Path("jobs/../jobs/job.yaml")):
        job = load_job(given)
        assert job.parties["bank"].table.path.resolve() == tmp_path / "bank.tsv"
        assert job.parties["bank"].secret == tmp_path / "jobs" / "keys" / "bank.key"
        assert job.parties["telco"].table.path == Path("/data/telco.csv")
    assert load_job(written(tmp_path, SHORT)).parties["bank"].table.path == tmp_path / "bank.csv"


def test_names_and_ranges_are_written_out(tmp_path):
    job = load_job(written(tmp_path, LONG))
    assert job.parties["bank"].table.columns == ("id", "y", "I1", "I2", "I3")
    assert job.parties["bank"].features.include == ("I1", "I2", "I3")
    assert job.name == "2026"


@pytest.mark.parametrize("name", ["credit\n\n## Guarantees\n\n- epsilon 0", "\x1b[2K", "\u202e", "", "x" * 101])
def test_a_name_forges_no_line_of_a_page_that_others_sign(tmp_path, name):
    with pytest.raises(ConfigError, match="name: expected a name of 1 to 100 printable characters"):
        load_job(written(tmp_path, f"name: {json.dumps(name)}\n{SHORT}"))


def test_a_file_in_another_languages_letters(tmp_path):
    job = load_job(written(tmp_path, "\ufeff" + SHORT.replace("default", "Ausfall für Größe")))
    assert job.parties["bank"].label == "Ausfall für Größe"
    assert load_job(written(tmp_path, dump_job(job))) == job


PRIVATE = [
    ("parties.bank.table", "elsewhere.csv"),
    ("parties.bank.id", "key"),
    ("parties.bank.label", "other"),
    ("parties.bank.privacy", {"max_norm": None}),
    ("parties.bank.audit", {"every": "never"}),
    ("parties.bank.features", {"include": "none"}),
    ("parties.bank.secret", "k"),
    ("parties.telco.privacy", {}),
    ("compare", ["each"]),
    ("name", "another"),
]

SHARED = [
    ("task", "multiclass"),
    ("train.seed", 2),
    ("train.epochs", 3),
    ("train.batch_size", 5),
    ("train.threads", 3),
    ("train.shuffle", "blocks"),
    ("train.keep", "last"),
    ("train.split", {"test": 0.3}),
    ("train.optimizer", {"lr": 0.5}),
    ("train.early_stop", {"patience": 9}),
    ("model.top", {"kind": "mlp", "hidden": [7]}),
    ("model.bottom", {"kind": "mlp", "hidden": [7]}),
    ("parties.mill", {"role": "passive"}),
]


def plain() -> dict:
    parties = {
        "bank": {"role": "active", "table": "bank.csv", "id": "id", "label": "y"},
        "telco": {"role": "passive", "table": "telco.csv", "id": "id"},
    }
    return {"parties": parties, "model": {}, "train": {"seed": 1}}


def changed(path: str, value: object) -> Job:
    raw = plain()
    *way, last = path.split(".")
    inner = raw
    for key in way:
        inner = inner[key]
    inner[last] = value
    return Job.model_validate(raw)


@pytest.mark.parametrize(("path", "value"), PRIVATE)
def test_the_digest_tells_nothing_of_a_private_part(path, value):
    assert changed(path, value).digest() == Job.model_validate(plain()).digest()


@pytest.mark.parametrize(("path", "value"), SHARED)
def test_the_digest_changes_with_what_is_shared(path, value):
    assert changed(path, value).digest() != Job.model_validate(plain()).digest()


def test_the_digest_changes_with_names_and_roles_but_not_with_what_is_said_twice():
    digest = Job.model_validate(plain()).digest()
    swapped = plain()
    swapped["parties"] = {"bank": {**swapped["parties"]["bank"], "role": "passive"}, "telco": {"role": "active"}}
    renamed = plain()
    renamed["parties"]["shop"] = renamed["parties"].pop("telco")
    assert len({digest, Job.model_validate(swapped).digest(), Job.model_validate(renamed).digest()}) == 3
    assert changed("train.epochs", "auto").digest() == digest, "it is the default"
    assert len(digest) == 32


@pytest.mark.parametrize("each", [False, True])
def test_one_label_epsilon_is_one_job_however_it_is_written(each: bool) -> None:
    def digest(epsilon: float) -> str:
        section = {"kind": "grade", "label_epsilon": epsilon}
        return changed("model.bottom", dict.fromkeys(plain()["parties"], section) if each else section).digest()

    assert digest(1) == digest(1.0) != digest(2)
    assert digest(-(10**400)) != digest(1), "which is no float, and is refused later"


def test_a_private_part_fills_in_one_party(tmp_path):
    public = load_job(
        written(tmp_path, "parties: {bank: {role: active, address: '127.0.0.1:1'}, telco: {role: passive}}")
    )
    (tmp_path / "mine").mkdir()
    part = load_private_part(
        written(tmp_path / "mine", "table: t.csv\nid: id\nlabel: y\nprivacy: {max_norm: }\nsecret: k\n", "party.yaml")
    )
    whole = with_private_part(public, "bank", part)
    bank = whole.parties["bank"]
    assert (bank.role, bank.address) == ("active", "127.0.0.1:1"), "the job says these"
    assert bank.table.path == tmp_path / "mine" / "t.csv"
    assert bank.secret == tmp_path / "mine" / "k"
    assert bank.id is not None
    assert (bank.id.columns, bank.label, dict(bank.privacy)) == (("id",), "y", {"max_norm": None})
    assert whole.parties["telco"] == public.parties["telco"]
    assert list(whole.parties) == ["bank", "telco"]
    assert whole.digest() == public.digest()
    assert public.parties["bank"].table is None, "the job given is left as it was"


@pytest.mark.parametrize("of", ["name", "task", "parties"])
def test_a_few_lines_of_aliases_do_not_stand_for_more_than_memory_holds(tmp_path, of):
    """Of a partner's job a digest, a copy or an error would write them out."""
    levels = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"- &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    path = tmp_path / "job.yaml"
    path.write_text(f"{of}:\n" + "\n".join(levels))
    with pytest.raises(ConfigError, match="1,000,000 values"):
        load_job(path)
    path.write_text(f"{of}: &own [1, *own]")
    with pytest.raises(ConfigError, match="1,000,000 values"):
        load_job(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: &a0 {x: 1}\n"
            + "".join(f"k{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
            "1,000,000 values",
        ),
        ("a: &a\n  <<: *a\n", "job.yaml"),
        (f"parties: [{', '.join(f'c{n}x1..c{n}x99999' for n in range(12))}]", "1,000,000 values"),
        (f"parties: {{{', '.join(f'c{n}x1..c{n}x99999: 1' for n in range(12))}}}", "1,000,000 values"),
        ("name: " + "1" * 500_000, "up to 1,000 digits"),
        ("name: x" + "1" * 500_000 + "..2", "job.yaml"),
        ("name: 0x" + "f" * 20_000, "up to 1,000 digits, got 20,002"),
        ("? 0b" + "1" * 20_000 + "\n: 1", "up to 1,000 digits, got 20,002"),
        ("name: !!bool x", "a value of the type in its tag, got 'x'"),
        ("".join(f"k{n}: 1\n" for n in range(300)), "and 281 more"),
        ("".join(f"k{n}: 1\n" for n in range(200_000)), "up to 1,048,576 bytes"),
    ],
    ids=[
        "merges",
        "merge of itself",
        "ranges",
        "keys",
        "digits",
        "long range",
        "long number",
        "long key",
        "tag",
        "many keys",
        "long file",
    ],
)
def test_a_hostile_file_is_refused_at_once(tmp_path, text, message, monkeypatch):
    composed = []
    monkeypatch.setattr("cutlayer.config.lines.YAML", lambda **kwargs: composed.append(1) or YAML(**kwargs))
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_job(path)
    assert len(composed) <= 1, "a partner's file of 10 kB would be parsed once for each of its faults"
    assert not composed or path.stat().st_size <= MAX_BYTES, "finding the lines of a long file takes half a minute"


def test_a_private_part_of_nobody():
    with pytest.raises(ConfigError, match=r"expected a party of the job \(bank, telco\), got shop"):
        with_private_part(Job.model_validate(plain()), "shop", PrivatePart())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tabel: t.csv\n", "party.yaml:1: tabel: unknown key; did you mean 'table'"),
        ("role: active\n", "party.yaml:1: role: unknown key"),
        ("privacy: [max_norm]\n", "party.yaml:1: privacy: expected keys and values, got"),
        ("", "party.yaml: expected keys and values"),
    ],
)
def test_a_private_part_that_is_wrong(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_private_part(written(tmp_path, text, "party.yaml"))


def test_jobs_are_frozen():
    job = Job.model_validate(plain())
    with pytest.raises(ValueError, match="frozen"):
        job.task = "regression"
    with pytest.raises(ValueError, match="frozen"):
        job.train.seed = 5


def test_derived_facts():
    job = Job.model_validate(plain())
    assert (job.active, job.passives, job.keeps_best) == ("bank", ("telco",), True)
    assert not changed("train.keep", "last").keeps_best
    assert not changed("train.split", {"validation": 0}).keeps_best
    assert job.model.bottom_of("bank") == job.model.bottom_of("telco")
    each = changed("model.bottom", {"bank": {"kind": "mlp"}, "telco": {"kind": "wide_deep"}})
    assert each.model.bottom_of("telco") == {"kind": "wide_deep"}


def test_what_was_read_may_be_changed(tmp_path: Path) -> None:
    """A text is parsed once; every reader has values of its own."""
    (tmp_path / "a.yaml").write_text("parties: {bank: [1]}\n")
    read_yaml(tmp_path / "a.yaml")["parties"]["bank"].append(2)
    assert read_yaml(tmp_path / "a.yaml") == {"parties": {"bank": [1]}}


def test_a_job_given_as_a_private_file_is_named_as_such(tmp_path: Path) -> None:
    """Else each of its keys is unknown, with the nearest key of a private file."""
    path = written(tmp_path, "parties: {bank: {role: active}}\nmodel: {top: {kind: auto}}\n", "party.yaml")
    with pytest.raises(ConfigError, match="private file, with its table, got a job of all parties; name the file"):
        load_private_part(path)
