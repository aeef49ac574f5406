"""The verbs and options, frozen: what is added or renamed shows in a diff of this file."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from cutlayer.cli.app import all_verbs, app
from tests.cli.jobs import QuietPlace

FRAME = {"--help", "--install-completion", "--show-completion", "--version"}
VERBS = {
    "demo": {"--copy", "--help", "--json", "--out", "--quiet"},
    "init": {
        "--apart",
        "--as",
        "--event",
        "--exposure",
        "--further-label",
        "--group",
        "--help",
        "--id",
        "--json",
        "--label",
        "--labels",
        "--overwrite",
        "--partner",
        "--partner-name",
        "--positive",
        "--protect",
        "--rows",
        "--split-by",
        "--task",
        "--width",
        "--yes",
        "folder",
    },
    "check": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--as",
        "--device",
        "--help",
        "--json",
        "--local",
        "job",
    },
    "approve": {
        "--accept",
        "--allow-model",
        "--as",
        "--help",
        "--json",
        "--kit",
        "--local",
        "--out",
        "--sign",
        "--withdraw",
        "job",
    },
    "run": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--device",
        "--forget-peer-progress",
        "--help",
        "--json",
        "--key",
        "--out",
        "--quiet",
        "--resume",
        "job",
    },
    "party": {
        "--address",
        "--allow-model",
        "--allow-path",
        "--as",
        "--deadline",
        "--device",
        "--forget-peer-progress",
        "--help",
        "--json",
        "--key",
        "--kit",
        "--local",
        "--out",
        "--pilot",
        "--plaintext",
        "--preflight",
        "--quiet",
        "--reconnect",
        "--release",
        "--resume",
        "--rows",
        "--timeout",
        "job",
    },
    "align": {
        "--as",
        "--deadline",
        "--dry-run",
        "--exchange",
        "--help",
        "--json",
        "--local",
        "--out",
        "--plaintext",
        "--reconnect",
        "--reveal",
        "--timeout",
        "--wait",
        "job",
    },
    "exchange": {
        "--absent",
        "--allow-model",
        "--allow-path",
        "--as",
        "--data",
        "--folder",
        "--help",
        "--json",
        "--key",
        "--local",
        "--max-drift",
        "--out",
        "--overwrite",
        "--plaintext",
        "--round",
        "--version",
        "--wait",
        "job",
    },
    "forget": {
        "--accept",
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--as",
        "--folder",
        "--help",
        "--json",
        "--key",
        "--local",
        "--party",
        "--quiet",
        "--rows",
        "--run",
        "--unknown",
        "job",
    },
    "pilot": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--device",
        "--help",
        "--json",
        "--key",
        "--out",
        "--quiet",
        "--resume",
        "--rows",
        "job",
    },
    "release": {
        "--allow-model",
        "--allow-path",
        "--as",
        "--data",
        "--device",
        "--folder",
        "--help",
        "--json",
        "--key",
        "--labels",
        "--local",
        "--max-drift",
        "--out",
        "--pilot",
        "--plaintext",
        "--resume",
        "--rows",
        "--run",
        "job",
    },
    "party predict": {
        "--absent",
        "--allow-model",
        "--allow-path",
        "--as",
        "--data",
        "--deadline",
        "--help",
        "--json",
        "--key",
        "--local",
        "--max-drift",
        "--out",
        "--overwrite",
        "--plaintext",
        "--reconnect",
        "--release",
        "--rows",
        "--run",
        "--timeout",
        "job",
    },
    "predict": {
        "--absent",
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--data",
        "--help",
        "--json",
        "--key",
        "--max-drift",
        "--out",
        "--overwrite",
        "--partial",
        "path",
    },
    "audit": {
        "--allow-model",
        "--allow-path",
        "--attack",
        "--canaries",
        "--empirical-epsilon",
        "--fail-above",
        "--help",
        "--json",
        "--served",
        "path",
    },
    "report": {"--allow-path", "--for", "--help", "--json", "--markdown", "path"},
    "ledger": {"--allow-path", "--help", "--json", "folder"},
    "list": {"--allow-model", "--help", "--json", "what"},
    "schema": {"--help", "--json", "of"},
    "doctor": {"--help", "--json"},
    "keys": {"--help"},
    "trail": {"--help"},
}
OF_PLUGINS = {
    "compare": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--help",
        "--json",
        "--leak",
        "--out",
        "--protect",
        "--quiet",
        "--seeds",
        "job",
    },
    "export": {
        "--allow-model",
        "--allow-path",
        "--as",
        "--help",
        "--json",
        "--model",
        "--onnx",
        "--out",
        "--registry",
        "path",
    },
    "api-key": {"--help", "--json", "name"},
    "nvflare": {"--help", "--json", "--out", "--resume-job", "--route", "--site", "job"},
    "recommend": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--guarantee",
        "--help",
        "--json",
        "--max-excess",
        "--max-leak",
        "--max-loss",
        "--max-rebuilt",
        "--out",
        "--quiet",
        "--seeds",
        "--storage",
        "job",
    },
    "serve": {"--allow-model", "--allow-path", "--as", "--help", "--json", "--key", "--local", "--plaintext", "runs"},
    "sweep": {
        "--allow-host",
        "--allow-model",
        "--allow-path",
        "--help",
        "--json",
        "--leak",
        "--out",
        "--quiet",
        "--storage",
        "--trials",
        "--vary",
        "job",
    },
}
"""Those of the packages in `plugins`, which the help lists after all others."""
ALL_VERBS = VERBS | OF_PLUGINS
TRAIL = {verb: {"--allow-path", "--help", "--json", "folder"} for verb in ("verify", "show")}
KEYS = {
    "init": {"--federation", "--folder", "--help", "--json", "name"},
    "invite": {"--address", "--folder", "--help", "--json", "--out", "name"},
    "request": {"--fingerprint", "--folder", "--help", "--json", "invitation"},
    "sign": {"--days", "--fingerprint", "--folder", "--help", "--json", "--out", "file"},
    "renew": {"--days", "--folder", "--help", "--json", "--out", "name"},
    "revoke": {"--folder", "--help", "--json", "name"},
    "list": {"--folder", "--help", "--json"},
}


def options_of(command):
    """Every long option and argument of a command, as it is written."""
    flags = {opt for param in command.params for opt in param.opts if opt.startswith("--")}
    names = {param.name for param in command.params if not any(opt.startswith("-") for opt in param.opts)}
    return flags | names | {"--help"}


def test_verbs_and_options_are_those_listed_here():
    group = typer.main.get_command(app)
    assert options_of(group) == FRAME
    assert {name: options_of(command) for name, command in group.commands.items()} == VERBS
    assert {name: options_of(command) for name, command in all_verbs().items()} == ALL_VERBS
    assert {name: options_of(command) for name, command in group.commands["keys"].commands.items()} == KEYS
    assert {name: options_of(command) for name, command in group.commands["trail"].commands.items()} == TRAIL


def test_every_verb_can_answer_a_program():
    assert {verb for verb, options in ALL_VERBS.items() if "--json" not in options} == {"keys", "trail"}  # groups


def test_every_option_has_a_meaning_and_none_a_short_name():
    for command in all_verbs().values():
        for param in command.params:
            assert param.help
            assert not [opt for opt in param.opts if opt.startswith("-") and not opt.startswith("--")]


@pytest.fixture(scope="module")
def helped():
    """The help of a verb, which is laid out once for all tests that read it."""
    return cache(lambda name: QuietPlace(Path()).call(*name.split(), "--help"))


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_help_of_every_verb_names_each_option_and_fits_80_columns(place, helped, verb):
    result = helped(verb)
    assert (result.code, result.err) == (0, "")
    assert f"Usage: cutlayer {verb}" in result.out
    for name in ALL_VERBS[verb]:
        assert name in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_help_lists_the_verbs_in_the_order_of_a_first_day(place):
    result = place.call("--help")
    assert result.code == 0
    offsets = [result.out.index(f"│ {verb} ") for verb in VERBS]
    assert offsets == sorted(offsets)


def test_no_verb_shows_the_help(place):
    result = place.call()
    assert result.code == 2
    assert "Usage: cutlayer" in result.out
    assert result.err == ""


def test_version(place):
    assert place.call("--version") == type(place.call("--help"))(0, f"cutlayer {version('cutlayer')}\n", "")


@pytest.mark.parametrize(
    ("words", "completed"),
    [("cutlayer ru", "run"), ("cutlayer run --re", "--resume"), ("cutlayer list pro", "protections")],
)
def test_shell_completion(place, monkeypatch, words, completed):
    monkeypatch.setenv("_CUTLAYER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        place.call()
    assert ended.value.code == 0
    assert place.capsys.readouterr().out.split() == [completed]


def test_show_completion(place, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    # The variable is read when the options are.
    monkeypatch.setattr(sys.modules["cutlayer.cli.app"], "_command", lambda: typer.main.get_command(app))
    with pytest.raises(SystemExit) as ended:
        place.call("--show-completion", "bash")
    assert ended.value.code == 0
    assert "_CUTLAYER_COMPLETE=complete_bash" in place.capsys.readouterr().out


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_help_of_every_verb_has_an_example_with_options_that_exist(place, helped, verb):
    group = next((group for group in app.registered_groups if group.name == verb), None)
    inner = group.typer_instance.registered_commands if group and group.typer_instance else ()
    for name in [f"{verb} {part.name or part.callback.__name__}" for part in inner] or [verb]:
        text = " ".join(helped(name).out.split())
        example = text[text.index("Example: cutlayer ") :]
        assert example.startswith(f"Example: cutlayer {name} ")
        options = {word for word in example.split() if word.startswith("--")}
        assert options <= (
            ALL_VERBS[verb] if name == verb else set(re.findall(r"--[\w-]+", text[: text.index("Example:")]))
        )
