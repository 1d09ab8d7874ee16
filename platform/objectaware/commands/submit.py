"""The command that runs another command as a Ray job."""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from objectaware.commands.common import STORAGE_VARIABLE
from objectaware.commands.registry import all_subcommands, command
from objectaware.errors import InputError
from objectaware.process import USER_KEY, user_name

_TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"
_SHARED = "Give a folder that all nodes share, such as s3://bucket/runs or /shared/runs."
_SERVER = "Start an MLflow server that the cluster reaches (docs/cluster.md), and give its address."
_INTERPRETERS = ("python", "python3", "bash", "sh")


@command("submit", "[--address URL] -- COMMAND …", "Run the same command as a Ray job.")
def submit(
    words: list[str], address: str | None = None, working_dir: Path = Path(), submission_id: str | None = None
) -> None:
    """Run a command, written after --, as a Ray job of this user, follow its log and exit with its status.

    The working directory is uploaded without data, runs and history. MLFLOW_TRACKING_URI and
    OBJECTAWARE_STORAGE are passed on. If they are not set here, the values of the cluster's nodes apply, or ./runs
    if this machine is the whole cluster. Ctrl-C stops the job.

    Args:
        words: The command.
        address: Address of the cluster's dashboard. By default RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or
            http://127.0.0.1:8265.
        working_dir: Folder that is uploaded, a clone or any folder with the recipe.
        submission_id: Name of the job. A cluster takes each name once, so that a command sent twice under the same
            name runs once.
    """
    folder = working_dir.resolve()
    entrypoint = job_command(words, folder)

    from objectaware.distributed import submit as jobs
    from objectaware.tracking.environment import git_commit

    client = jobs.connect_jobs(address)
    environment = job_environment(os.environ, folder, is_alone_here=jobs.is_this_machine())
    commit = git_commit(folder / "pyproject.toml")
    name = submission_id or f"objectaware-{uuid.uuid4().hex[:16]}"
    jobs.submit_job(
        client,
        name,
        shlex.join(entrypoint),
        working_dir=folder,
        environment=environment,
        excludes=_own_storage(environment.get(STORAGE_VARIABLE), folder),
        metadata={key: value for key, value in {"git_commit": commit, USER_KEY: user_name()}.items() if value},
    )
    for key, value in {"job": name, **environment}.items():
        print(f"{key}: {value}", flush=True)
    status = jobs.follow_job(client, name, partial(print, end="", flush=True))
    if status:
        print(f"objectaware: job {name} ended with {status}", file=sys.stderr)
        sys.exit(status)


def job_command(words: Sequence[str], working_dir: Path) -> list[str]:
    """Return the command of the job: one of this package, with or without `objectaware` before it, or a script.

    Args:
        words: The command as the user wrote it.
        working_dir: Folder that is uploaded. The returned recipes are named relative to it.

    Raises:
        InputError: There is no such command, or a recipe is not uploaded with the working directory.
    """
    if not words:
        raise InputError("command", "", "is missing", "Write it after --: objectaware submit -- pretrain RECIPE.")
    rest = list(words[1:] if words[0] == "objectaware" else words)
    if rest and rest[0] in {name.split()[0] for name in all_subcommands()}:
        # Not the console script, since the package may exist only in the upload.
        rest = ["python", "-m", "objectaware.cli", *rest]
    elif words[0] not in _INTERPRETERS:
        remedy = "Give a command of `objectaware --help`, or `python SCRIPT …`."
        raise InputError("command", shlex.join(words), "is not known", remedy)
    return [_uploaded_recipe(word, working_dir) for word in rest]


def _uploaded_recipe(word: str, working_dir: Path) -> str:
    """Return the word or, if it is an existing recipe, its path relative to the working directory."""
    option, equals, text = word.rpartition("=")
    recipe = Path(text)
    if recipe.suffix not in (".yaml", ".yml") or not recipe.is_file():
        return word
    if not recipe.resolve().is_relative_to(working_dir):
        remedy = f"Copy it into {working_dir}, or give --working-dir a folder that holds it."
        raise InputError("recipe", text, "lies outside of the working directory, which is all that a job sees", remedy)
    return f"{option}{equals}{recipe.resolve().relative_to(working_dir)}"


def job_environment(given: Mapping[str, str], working_dir: Path, *, is_alone_here: bool) -> dict[str, str]:
    """Return the environment variables of the job: the places of its results and of its package.

    Args:
        given: Environment of this process.
        working_dir: Folder that is uploaded.
        is_alone_here: Whether this machine is the whole cluster.

    Raises:
        InputError: Results would go to one node's disk, or a password would appear in Ray's logs.
    """
    environment = {"PYTHONPATH": "platform"} if (working_dir / "platform" / "objectaware").is_dir() else {}
    storage = given.get(STORAGE_VARIABLE) or (str(working_dir / "runs") if is_alone_here else None)
    if storage:
        _refuse_password(STORAGE_VARIABLE, storage)
        # The job itself checks whether all nodes share an absolute path.
        is_relative = "://" not in storage and not Path(storage).is_absolute()
        if is_relative and not is_alone_here:
            raise InputError(STORAGE_VARIABLE, storage, "is a folder of this machine alone", _SHARED)
        environment[STORAGE_VARIABLE] = str(Path(storage).absolute()) if is_relative else storage
    if tracking := given.get(_TRACKING_VARIABLE):
        _refuse_password(_TRACKING_VARIABLE, tracking)
        is_file = tracking.startswith("sqlite:")
        if is_file and not is_alone_here:
            raise InputError(_TRACKING_VARIABLE, tracking, "is a file of this machine alone", _SERVER)
        path = Path(tracking.removeprefix("sqlite:///")).absolute()
        environment[_TRACKING_VARIABLE] = f"sqlite:///{path}" if is_file else tracking
    return environment


def _refuse_password(name: str, address: str) -> None:
    parts = urlsplit(address)
    if parts.password is not None:
        shown = address.replace(parts.netloc, parts.netloc.rpartition("@")[2])
        others = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        remedy = f"Leave it out here, and set the variable, or {others}, on the cluster's nodes."
        raise InputError(name, shown, "holds a password, which Ray would write into its logs", remedy)


def _own_storage(storage: str | None, working_dir: Path) -> list[str]:
    """Return the pattern of a storage in the working directory: a file written there would spoil the upload."""
    if storage is None or not Path(storage).is_relative_to(working_dir):
        return []
    return [f"/{Path(storage).relative_to(working_dir)}"]
