"""Every file that is written from the code, by its path in the repository."""

import json
from collections.abc import Mapping
from pathlib import Path

from seriatim.operations.permissions import GRANTS, anywhere, policy
from tools.deploy import terraform
from tools.sizing import page

SIZING = "docs/sizing.md"
PICTURE = "docs/pictures/cost-by-batch.svg"


def generated(root: Path) -> Mapping[str, str]:
    """Of the page about sizing only the figures are ours: its words are taken from the file."""
    policies = {f"deploy/iam/{name}.json": _json(policy(name, anywhere)) for name in GRANTS}
    modules = {
        "deploy/terraform/tables.tf.json": _json(terraform.tables()),
        "deploy/terraform/topics.tf.json": _json(terraform.topics()),
        "deploy/terraform/policies.tf.json": _json(terraform.policies()),
    }
    words = (root / SIZING).read_text(encoding="utf-8")
    return {**policies, **modules, SIZING: page.with_figures(words), PICTURE: page.picture()}


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"
