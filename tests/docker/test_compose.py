"""The services of docker/compose.yaml: what they must never do, whoever runs them.

The file as a whole was validated against the published schema of Compose (docs/cluster.md); here stands what that
schema does not ask for.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SECRETS = ("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY", "MLFLOW_ADMIN_PASSWORD", "MLFLOW_SECRET_KEY")
NEEDED = (*SECRETS, "RAY_AUTH_TOKEN", "MLFLOW_ALLOWED_HOSTS", "DATA_FOLDER")

Services = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def services() -> Services:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    found: Services = compose["services"]
    return found


def test_only_loopback_is_listened_on(services: Services) -> None:
    ports = {port for service in services.values() for port in service.get("ports", [])}
    assert ports == {"127.0.0.1:5000:5000", "127.0.0.1:8265:8265"}
    assert not any("network_mode" in service or "privileged" in service for service in services.values())


def test_the_stores_are_for_containers_alone(services: Services) -> None:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    assert compose["networks"]["stores"] == {"internal": True}
    for name in ("postgres", "s3"):
        assert services[name]["networks"] == ["stores"]


def test_no_secret_has_a_value_that_the_user_did_not_choose() -> None:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    for name in NEEDED:
        uses = re.findall(rf"\$\{{{name}([^}}]*)\}}", text)
        assert uses, name
        # `:?` refuses to start without it; `:-` would take a default.
        assert all(use.startswith(":?") for use in uses), name
    values = dict(re.findall(r"^([A-Z0-9_]+)=(.*)$", (ROOT / "docker" / ".env.example").read_text(), re.MULTILINE))
    assert values.keys() == set(NEEDED)
    assert not any(values[name] for name in (*SECRETS, "RAY_AUTH_TOKEN"))


def test_a_file_of_secrets_is_neither_committed_nor_in_the_image() -> None:
    ignored = subprocess.run(["git", "check-ignore", "docker/.env"], cwd=ROOT, capture_output=True, text=True)
    if "not a git repository" in ignored.stderr:
        pytest.skip("the tests do not run in a clone")
    assert ignored.returncode == 0
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_every_service_that_stays_is_watched(services: Services) -> None:
    for name, service in services.items():
        assert (service["restart"] == "unless-stopped") == ("healthcheck" in service), name
        assert "@" in service["image"] or ":" in service["image"], f"{name} has no tag"
        assert not service["image"].endswith(":latest"), name


def test_mlflow_asks_who_one_is_and_under_which_name(services: Services) -> None:
    mlflow = services["mlflow"]
    assert "--app-name basic-auth" in mlflow["command"]
    assert "mlflow,mlflow:5000" in mlflow["environment"]["MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert "MLFLOW_FLASK_SERVER_SECRET_KEY" in mlflow["environment"]
    assert "password" not in (ROOT / "docker" / "basic_auth.ini").read_text()


@pytest.mark.parametrize("name", ["ray-head", "ray-worker"])
def test_ray_asks_for_a_token_and_shares_its_storage(name: str, services: Services) -> None:
    environment = services[name]["environment"]
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["OBJECTAWARE_STORAGE"].startswith("s3://")
    assert services[name]["volumes"][0].endswith(":/data:ro")


def test_the_image_is_pinned_not_root_and_without_a_compiler() -> None:
    lines = (ROOT / "docker" / "Dockerfile").read_text()
    build, last = lines.split("\nFROM ")[1:]
    assert "build-essential" in build
    # Or the image is of version 0, as its first one was.
    assert build.index('__version__ = "0"') < build.index("rm -r build platform") < build.index("COPY platform")
    assert build.count("pip install") == build.count("--constraint constraints.txt") + build.count("--no-deps")
    assert not re.search(r"build-essential|gcc|pip install", last)
    users = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    assert users == ["objectaware"]
    assert lines.count("FROM ${BASE_IMAGE}") == 2


def test_what_the_image_copies_is_here_and_reaches_the_builder() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for copy in copies for source in copy.split()}
    assert {"platform", "jobs", "sweeps"} <= sources
    assert all((ROOT / source).exists() for source in sources)
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sources == set(let_in)
