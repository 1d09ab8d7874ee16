"""What `objectaware submit` makes of a command, before any cluster hears of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from objectaware.cli import run
from objectaware.commands import registry
from objectaware.commands.common import storage_address
from objectaware.commands.submit import job_command, job_environment
from objectaware.distributed import submit as jobs
from objectaware.errors import InputError
from objectaware.process import CONFIG_VARIABLE, user_name
from objectaware.tracking import environment_tags
from objectaware.tracking.spools import this_user


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"runtime_env": {}, "metadata": {"job_submission_id": "raysubmit_1", "git_commit": "abc", "user": "anna"}}
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps(job))


@pytest.mark.parametrize(
    ("words", "entrypoint"),
    [
        (["pretrain", "x.yaml"], ["python", "-m", "objectaware.cli", "pretrain", "x.yaml"]),
        (["objectaware", "demo"], ["python", "-m", "objectaware.cli", "demo"]),
        (["python", "jobs/demo.py"], ["python", "jobs/demo.py"]),
    ],
)
def test_a_command_may_be_ours_or_a_script(words: list[str], entrypoint: list[str], tmp_path: Path) -> None:
    assert job_command(words, tmp_path) == entrypoint


@pytest.mark.parametrize("words", [[], ["pretrian", "x.yaml"], ["objectaware"]])
def test_any_other_command_is_refused(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        job_command(words, tmp_path)
    assert refused.value.field == "command"


def test_recipes_are_named_as_the_job_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "clone" / "recipes"
    inside.mkdir(parents=True)
    (inside / "mine.yaml").write_text("")
    monkeypatch.chdir(inside)
    for word, expected in [
        ("mine.yaml", "recipes/mine.yaml"),
        (str(inside / "mine.yaml"), "recipes/mine.yaml"),
        ("--recipe=mine.yaml", "--recipe=recipes/mine.yaml"),
        ("not-here.yaml", "not-here.yaml"),
    ]:
        assert job_command(["pretrain", word], tmp_path / "clone")[-1] == expected


def test_a_recipe_outside_of_the_upload_is_refused(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "clone" / "link.yaml").symlink_to(tmp_path / "mine.yaml")
    for name in ("mine.yaml", "clone/link.yaml"):
        with pytest.raises(InputError, match="Copy it into"):
            job_command(["pretrain", str(tmp_path / name)], tmp_path / "clone")


def test_alone_on_this_machine_results_go_where_they_would_without_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "platform" / "objectaware").mkdir(parents=True)
    assert job_environment({}, tmp_path, is_alone_here=True) == {
        "PYTHONPATH": "platform",
        "OBJECTAWARE_STORAGE": f"{tmp_path}/runs",
    }
    given = {"OBJECTAWARE_STORAGE": "here", "MLFLOW_TRACKING_URI": "sqlite:///db"}
    environment = job_environment(given, tmp_path / "elsewhere", is_alone_here=True)
    assert environment == {
        "OBJECTAWARE_STORAGE": f"{tmp_path}/here",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/db",
    }


def test_a_cluster_takes_no_results_to_one_machines_files(tmp_path: Path) -> None:
    assert job_environment({}, tmp_path, is_alone_here=False) == {}
    shared = {"OBJECTAWARE_STORAGE": "s3://bucket/runs", "MLFLOW_TRACKING_URI": "http://mlflow:5000"}
    assert job_environment(shared, tmp_path, is_alone_here=False) == shared
    for name, value in [("OBJECTAWARE_STORAGE", "runs"), ("MLFLOW_TRACKING_URI", "sqlite:////tmp/mlflow.db")]:
        with pytest.raises(InputError, match="this machine alone") as refused:
            job_environment({name: value}, tmp_path, is_alone_here=False)
        assert refused.value.field == name


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("MLFLOW_TRACKING_URI", "http://me:hidden@mlflow:5000"),
        ("MLFLOW_TRACKING_URI", "postgresql://me:hidden@db/mlflow"),
        ("OBJECTAWARE_STORAGE", "s3://me:hidden@bucket/runs"),
    ],
)
def test_a_password_does_not_go_into_rays_logs(name: str, address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        job_environment({name: address}, tmp_path, is_alone_here=False)
    assert refused.value.field == name
    assert "hidden" not in str(refused.value)
    assert "MLFLOW_TRACKING_PASSWORD" in refused.value.remedy


def test_a_cluster_that_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    # Put back by monkeypatch, since the command sets it for Ray.
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    assert run(["submit", "--address", "127.0.0.1:9", "--", "demo"]) == 2
    assert "address = http://127.0.0.1:9: no Ray dashboard answers there" in capsys.readouterr().err


@pytest.mark.usefixtures("in_job")
def test_a_job_keeps_nothing_in_its_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for storage in (None, "runs", "./x"):
        with pytest.raises(InputError, match="which Ray deletes"):
            storage_address(storage)
    assert storage_address("/shared/runs") == "/shared/runs"
    monkeypatch.setenv("OBJECTAWARE_STORAGE", "s3://bucket/runs")
    assert storage_address(None) == "s3://bucket/runs"


@pytest.mark.usefixtures("in_job")
def test_a_jobs_runs_carry_its_id_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("objectaware.tracking.environment.git_commit", lambda _: None)
    tags = environment_tags("cpu")
    assert (tags["ray.submission_id"], tags["git_commit"]) == ("raysubmit_1", "abc")


def test_outside_a_job_no_id_is_noted() -> None:
    assert "ray.submission_id" not in environment_tags("cpu")


@pytest.mark.usefixtures("in_job")
def test_a_job_does_the_work_of_its_submitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "objectaware")
    assert (user_name(), this_user()) == ("anna", f"{os.getuid()}-anna")
    monkeypatch.setenv("LOGNAME", "anna")  # a job on the submitter's own machine goes on in the runs made there
    assert this_user() == str(os.getuid())


def test_the_user_of_a_job_without_a_submitter_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "objectaware")
    assert user_name() == "objectaware"
    monkeypatch.setenv(CONFIG_VARIABLE, json.dumps({"metadata": {"job_submission_id": "raysubmit_1"}}))
    assert user_name() is None
    assert this_user() == str(os.getuid())


def test_the_message_of_a_failure_is_the_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(program: str, arguments: list[str]) -> None:
        error = RuntimeError("the disk is full")
        error.add_note("On worker 0:\nTraceback …")
        raise error

    monkeypatch.setitem(registry._SUBCOMMANDS, "demo", registry.Subcommand(fail, "", ""))
    assert run(["demo"]) == 1
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed
    assert printed.splitlines()[-1] == "objectaware: RuntimeError: the disk is full"


@pytest.mark.parametrize(
    ("addresses", "num_cpus", "expected"),
    [
        (["127.0.0.1"], 2, True),
        (["127.0.1.1"], 2, True),  # no interface lists it, and it is of this machine all the same
        (["192.0.2.1"], 2, False),  # an address of documentation, of no machine
        (["127.0.0.1"], 0, False),  # such a head has an autoscaler, which adds nodes
        (["127.0.0.1", "192.0.2.1"], 2, False),
    ],
)
def test_a_cluster_is_this_machine_only_if_all_work_runs_here(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], num_cpus: int, expected: bool
) -> None:
    nodes = [
        SimpleNamespace(
            state="ALIVE",
            node_ip=address,
            is_head_node=number == 0,
            resources_total={"CPU": num_cpus} if num_cpus else {},
        )
        for number, address in enumerate(addresses)
    ]
    monkeypatch.setattr(jobs, "list_nodes", lambda detail: [*nodes, SimpleNamespace(state="DEAD")])
    assert jobs.is_this_machine() is expected
