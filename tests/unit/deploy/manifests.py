"""The files of deploy/ as data: the settings of each role's containers, and how they are run."""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from click.testing import CliRunner, Result

from seriatim.cli.main import main
from seriatim.runtime.config.sources import PREFIX

DEPLOY = Path(__file__).parents[3] / "deploy"
TOKEN = "a-word-of-ours"
_PLACE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")

Block = dict[str, Any]


def compose() -> Block:
    """With the variables that a user gives, and no others."""
    text = (DEPLOY / "compose" / "compose.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(_PLACE.sub(_given, text))
    assert isinstance(loaded, dict)
    return loaded


def _given(place: re.Match[str]) -> str:
    name, kind, otherwise = place.groups()
    if kind == "-":
        return str(otherwise)
    assert (name, kind) == ("SERIATIM_RPC_TOKEN", "?"), f"{name} has neither a default nor a reason"
    return TOKEN


@functools.cache
def documents() -> list[Block]:
    """All that the kustomization names."""
    folder = DEPLOY / "kubernetes"
    [kustomization] = _load(folder / "kustomization.yaml")
    return [document for name in kustomization["resources"] for document in _load(folder / name)]


def _load(path: Path) -> list[Block]:
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def of_kind(kind: str) -> dict[str, Block]:
    return {each["metadata"]["name"]: each for each in documents() if each["kind"] == kind}


def pod(workload: Block) -> Block:
    spec = workload["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container(workload: Block) -> Block:
    [found] = pod(workload)["containers"]
    assert isinstance(found, dict)
    return found


def environment(workload: Block) -> dict[str, str]:
    """As the process sees it. Secrets have a value for tests, the settings that of the config map."""
    settings = of_kind("ConfigMap")["settings"]["data"]
    found: dict[str, str] = {}
    for each in container(workload).get("env", ()):
        match each:
            case {"value": str(value)}:
                found[each["name"]] = value
            case {"valueFrom": {"configMapKeyRef": {"name": "settings", "key": key}}}:
                found[each["name"]] = settings[key]
            case {"valueFrom": {"secretKeyRef": {"name": "rpc-token", "key": "token"}}}:
                found[each["name"]] = TOKEN
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                found[each["name"]] = "a-pod-1"
            case _:
                raise AssertionError(f"what is {each}?")
    return found


def config_check(role: str, environ: Mapping[str, str]) -> Result:
    """`seriatim config check` as that role would find its settings: those alone. Warnings are shown too."""
    ours = {name: None for name in os.environ if name.startswith(PREFIX)}
    return CliRunner().invoke(main, ["config", "check", "--roles", role], env={**ours, **environ})


def parse(arguments: list[str]) -> list[str]:
    """Finds the command and parses its options as click does, without running it. Returns the command's words."""
    command: click.Command = main
    context = click.Context(main)
    words: list[str] = []
    left = list(arguments)
    while isinstance(command, click.Group):
        name = left.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command = found
        words.append(name)
    command.make_context(words[-1], left, parent=context)  # raises a UsageError
    return words


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text.removesuffix("s"))


def flags(role: str) -> Iterator[str]:
    """The settings that a role's command takes, as variables."""
    command = main.get_command(click.Context(main), role)
    assert command is not None
    for option in command.params:
        if option.name not in (None, "file"):
            yield f"SERIATIM_{str(option.name).upper()}"
