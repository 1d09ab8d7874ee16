"""The services of docker/compose.yaml: what they must never do, whoever runs them.

The file as a whole was validated against the published schema of Compose (docs/cluster.md); here stands what that
schema does not ask for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray._private.utils import resolve_object_store_memory

ROOT = Path(__file__).parents[2]
SECRETS = (
    *("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY", "S3_JOBS_ACCESS_KEY", "S3_JOBS_SECRET_KEY"),
    *("S3_MLFLOW_ACCESS_KEY", "S3_MLFLOW_SECRET_KEY", "MLFLOW_ADMIN_PASSWORD", "MLFLOW_JOBS_PASSWORD"),
    "MLFLOW_SECRET_KEY",
)
SETTINGS = ("MLFLOW_ALLOWED_HOSTS", "DATA_FOLDER", "TLS_ADDRESS", "TLS_NAME", "TLS_CERTIFICATE")
NEEDED = (*SECRETS, "RAY_AUTH_TOKEN", *SETTINGS)

Services = dict[str, dict[str, Any]]


def example() -> dict[str, str]:
    """Return the values of docker/.env.example."""
    text = (ROOT / "docker" / ".env.example").read_text()
    return dict(re.findall(r"^([A-Z0-9_]+)=(.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def services() -> Services:
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    found: Services = compose["services"]
    return found


def test_only_loopback_is_listened_on(services: Services) -> None:
    ports = {port for service in services.values() for port in service.get("ports", [])}
    assert ports == {"127.0.0.1:5000:5000", "127.0.0.1:8265:8265", "${TLS_ADDRESS:?see docker/.env.example}:443"}
    assert example()["TLS_ADDRESS"].startswith("127.0.0.1:")
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
    values = example()
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


@pytest.mark.parametrize("name", ["ray-head", "ray-worker"])
def test_a_job_is_neither_mlflows_nor_the_stores_administrator(name: str, services: Services) -> None:
    """Anyone who submits a job can read these."""
    environment = services[name]["environment"]
    assert environment["MLFLOW_TRACKING_USERNAME"] == "jobs"
    text = " ".join(environment.values())
    assert "S3_JOBS_ACCESS_KEY" in text
    assert not re.search(r"MLFLOW_ADMIN_PASSWORD|S3_ACCESS_KEY|S3_SECRET_KEY|S3_MLFLOW|MINIO_ROOT", text)
    # The user is there before Ray is.
    assert services["mlflow-user"]["environment"]["NEW_USERNAME"] == "jobs"
    assert services["ray-head"]["depends_on"] == {"mlflow-user": {"condition": "service_completed_successfully"}}


@pytest.mark.parametrize(("user", "folder"), [("jobs", "runs"), ("mlflow", "mlflow")])
def test_the_store_lets_a_user_into_its_folder_alone(user: str, folder: str, services: Services) -> None:
    policy = json.loads((ROOT / "docker" / f"s3-{user}-policy.json").read_text())
    bucket = "arn:aws:s3:::objectaware"
    for statement in policy["Statement"]:
        assert not any("*" in action for action in statement["Action"])
        objects = any(action.endswith("Object") for action in statement["Action"])
        assert statement["Resource"] == ([f"{bucket}/{folder}", f"{bucket}/{folder}/*"] if objects else [bucket])
    mounted = {volume.split(":")[0].removeprefix("./") for volume in services["bucket"]["volumes"]}
    assert f"s3-{user}-policy.json" in mounted
    used = (
        services["mlflow"]["command"]
        if user == "mlflow"
        else services["ray-head"]["environment"]["OBJECTAWARE_STORAGE"]
    )
    assert f"s3://objectaware/{folder}" in used


MC = """\
#!/usr/bin/env bash
echo "$*" >>"$LOG"
[ "$1 $2 $3" != "admin user info" ] || cat "$LOG.$5" 2>/dev/null || exit 0
[ "$1 $2 $3" != "admin policy attach" ] || echo "PolicyName: $5" >"$LOG.$7"
"""


def test_the_bucket_and_its_users_are_made_once_and_kept(services: Services, tmp_path: Path) -> None:
    (tmp_path / "mc").write_text(MC)
    (tmp_path / "mc").chmod(0o755)
    (script,) = services["bucket"]["command"]
    script = script.replace("$$", "$")  # as Compose does
    kinds = ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", *SECRETS)
    variables = {name: name.lower() for name in kinds} | {"LOG": str(tmp_path / "log")}
    environment = {**os.environ, **variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["/bin/sh", "-ec", script], env=environment, check=True, timeout=30)
    calls = (tmp_path / "log").read_text().splitlines()
    for user in ("jobs", "mlflow"):
        key, secret = f"s3_{user}_access_key", f"s3_{user}_secret_key"
        assert calls.count(f"admin user add store {key} {secret}") == 2
        assert calls.count(f"admin policy create store {user} /etc/objectaware/s3-{user}-policy.json") == 2
        assert calls.count(f"admin policy attach store {user} --user {key}") == 1


@pytest.mark.parametrize("name", ["ray-head", "ray-worker"])
@pytest.mark.parametrize("gigabytes", [8, 64, 1024])
def test_the_shared_memory_holds_rays_object_store(
    name: str, gigabytes: int, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own arithmetic, on machines of several sizes: by itself, Ray takes 30% of the memory."""
    options = dict(option.split("=", 1) for option in shlex.split(services[name]["command"]) if "=" in option)
    size = services[name]["shm_size"]
    assert size.endswith("gb")
    shared = int(size.removesuffix("gb")) * 2**30
    monkeypatch.setattr("ray._private.utils.get_shared_memory_bytes", lambda: shared)
    given = options.get("--object-store-memory")
    store = resolve_object_store_memory(gigabytes * 2**30, None if given is None else int(given))
    assert store <= shared, "Ray would put the object store on the disk"


def test_gpus_are_for_the_worker() -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.gpu.yaml").read_text())["services"]
    (device,) = services.pop("ray-worker")["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert not services


def test_tls_is_in_front_of_mlflow(services: Services) -> None:
    proxy = services["proxy"]
    lines = [line for line in (ROOT / "docker" / "Caddyfile").read_text().splitlines() if not line.startswith("#")]
    assert lines == ["{$TLS_NAME} {", "\ttls {$TLS_CERTIFICATE}", "\treverse_proxy mlflow:5000", "}"]
    assert {"TLS_NAME", "TLS_CERTIFICATE"} == proxy["environment"].keys()
    assert "./Caddyfile:/etc/caddy/Caddyfile:ro" in proxy["volumes"]
    # The name and the port are what a browser says to MLflow, which refuses others.
    values = example()
    port = values["TLS_ADDRESS"].split(":")[1]
    assert f"{values['TLS_NAME']}:{port}" in values["MLFLOW_ALLOWED_HOSTS"].split(",")
    origins = services["mlflow"]["environment"]["MLFLOW_SERVER_CORS_ALLOWED_ORIGINS"]
    assert f"https://${{TLS_NAME:?see docker/.env.example}}:{port}" in origins.split(",")


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "docker" / "Dockerfile").read_text()


def test_the_image_is_pinned_and_not_root(dockerfile: str) -> None:
    build, last = dockerfile.split("\nFROM ")[1:]
    assert "build-essential" in build
    # Or the image is of version 0, as its first one was.
    assert build.index('__version__ = "0"') < build.index("rm -r build platform") < build.index("COPY platform")
    assert build.count("pip install") == build.count("--constraint constraints.txt") + build.count("--no-deps")
    assert "pip install" not in last
    users = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    assert users == ["objectaware"]
    assert dockerfile.count("FROM ${BASE_IMAGE}") == 2


@pytest.mark.parametrize(
    ("package", "user"),
    [
        ("openssh-client", "Ray's autoscaler starts the workers by ssh, from the head's container"),
        ("rsync", "and copies files to them"),
        ("netbase", "which Ray's own image has for it"),
        ("tmux", "ray attach --tmux"),
        ("wget", "KubeRay before 1.6 asks for the health of containers by wget"),
        ("gcc", "torch.compile: triton compiles the launcher of each kernel"),
        ("g++", "torch.compile: inductor compiles kernels for CPUs"),
        ("python3.11-dev", "torch.compile: both include Python.h"),
        ("ca-certificates", "TLS"),
        ("tini", "the first process"),
    ],
)
def test_the_image_has_what_its_users_start(package: str, user: str, dockerfile: str) -> None:
    last = dockerfile.split("\nFROM ")[2]
    installed = re.search(r"install --yes --no-install-recommends \\\n(.*?) \\\n", last, re.DOTALL)
    assert installed is not None
    assert package in installed[1].split(), user


def test_the_image_says_what_nvidias_runtime_and_rays_launcher_ask_it_for(dockerfile: str) -> None:
    last = dockerfile.split("\nFROM ")[2]
    found = last.split("\nENV ")[1].split("\nUSER ")[0]
    variables = dict(setting.split("=", 1) for setting in found.replace("\\\n", " ").split())
    # Debian's image names no GPU, and the runtime gives a container none then.
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert {"compute", "utility"} <= set(variables["NVIDIA_DRIVER_CAPABILITIES"].split(","))
    # The launcher mounts `~` of file_mounts at HOME of the image, and at /root if that has none.
    home = variables["HOME"]
    assert f"WORKDIR {home}\n" in last
    assert "useradd --uid 1000 --create-home" in last
    mounted = yaml.safe_load((ROOT / "cluster.yaml").read_text())["file_mounts"]
    made = re.search(r"install --directory --owner objectaware (.*) \\", last)
    assert made is not None
    for target in mounted:  # or Docker makes their folders as root's
        assert str(Path(target.replace("~", home)).parent) in made[1].split()


def test_what_the_image_copies_is_here_and_reaches_the_builder() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    sources = {source for copy in copies for source in copy.split()}
    assert {"platform", "jobs", "sweeps"} <= sources
    assert all((ROOT / source).exists() for source in sources)
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sources == set(let_in)
