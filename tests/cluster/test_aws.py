"""The rights of cluster.yaml's machines on AWS: enough for what Ray calls, and for this cluster alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import botocore.client
import pytest
import yaml
from moto import mock_aws

ROOT = Path(__file__).parents[2]
REGION = "us-west-2"
Statement = dict[str, Any]


@pytest.fixture
def config() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    return loaded


def statements(role: str) -> list[Statement]:
    policy = json.loads((ROOT / "cluster" / f"aws-{role}-policy.json").read_text())
    assert policy["Version"] == "2012-10-17"
    found: list[Statement] = policy["Statement"]
    return found


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def actions(role: str) -> set[str]:
    return {action for statement in statements(role) for action in listed(statement["Action"])}


def test_every_node_has_a_role_of_its_own(config: dict[str, Any]) -> None:
    """Ray gives the workers none, and the head all rights to EC2 and S3."""
    types = config["available_node_types"]
    profiles = {name: node["node_config"]["IamInstanceProfile"]["Name"] for name, node in types.items()}
    assert profiles.pop("head") == "objectaware-head"
    assert set(profiles.values()) == {"objectaware-worker"}


@pytest.mark.parametrize("role", ["head", "worker"])
def test_a_role_has_only_rights_that_are_named(role: str) -> None:
    assert statements(role)
    for statement in statements(role):
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in listed(statement["Action"])), statement["Sid"]
        if "*" in listed(statement["Resource"]):  # what AWS knows no narrower resource for
            named = [action.split(":")[1] for action in listed(statement["Action"])]
            assert all(name.startswith("Describe") or name == "GetAuthorizationToken" for name in named)


def test_workers_cannot_start_or_end_machines() -> None:
    assert {action.split(":")[0] for action in actions("worker")} == {"ecr", "s3"}
    assert actions("worker") < actions("head")


def test_the_head_changes_only_nodes_of_its_cluster(config: dict[str, Any]) -> None:
    by_name = {statement["Sid"]: statement for statement in statements("head")}
    name = config["cluster_name"]
    ours = {"StringEquals": {"aws:ResourceTag/ray-cluster-name": name}}
    assert by_name["EndNodes"]["Condition"] == by_name["NoteTheStateOfNodes"]["Condition"] == ours
    start = by_name["StartNodesOfThisCluster"]["Condition"]["StringEquals"]
    workers = [node["node_config"] for kind, node in config["available_node_types"].items() if kind != "head"]
    assert start["aws:RequestTag/ray-cluster-name"] == name
    assert sorted(start["ec2:InstanceType"]) == sorted(worker["InstanceType"] for worker in workers)
    passed = by_name["GiveNodesTheirRole"]["Resource"].split("role/")[1]
    assert {worker["IamInstanceProfile"]["Name"] for worker in workers} == {passed}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[set[str]]:
    """Return what is called of a made-up AWS, as actions of its policies."""
    called: set[str] = set()
    original = botocore.client.BaseClient._make_api_call

    def noted(client: botocore.client.BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        called.add(f"{client.meta.service_model.service_name}:{operation}")
        return original(client, operation, arguments)

    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", noted)
    with mock_aws():
        yield called


@pytest.mark.slow  # moto's EC2 takes seconds to start
def test_the_head_may_do_what_ray_calls(calls: set[str], config: dict[str, Any]) -> None:
    import boto3
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config, validate_config

    ec2 = boto3.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    image = ec2.describe_images()["Images"][0]["ImageId"]
    for node in config["available_node_types"].values():
        node["node_config"] |= {"SubnetIds": [subnet], "SecurityGroupIds": [group], "ImageId": image}
    for name in ("objectaware-head", "objectaware-worker"):
        boto3.client("iam").create_instance_profile(InstanceProfileName=name)

    # On the user's machine: Ray makes neither a role nor a group that is open to the world.
    calls.clear()
    config = prepare_config(config)
    validate_config(config)
    config = AWSNodeProvider.bootstrap_config(config)
    assert not any(call.startswith("iam:") for call in calls)
    assert "ec2:AuthorizeSecurityGroupIngress" not in calls

    # On the head: `ray down` reads the configuration again there; the autoscaler starts, names and ends nodes.
    calls.clear()
    AWSNodeProvider.bootstrap_config({key: value for key, value in config.items() if key != "head_node"})
    provider = AWSNodeProvider(config["provider"], config["cluster_name"])
    for kind in ("gpu", "cpu"):
        node = dict(config["available_node_types"][kind]["node_config"])
        tags = {"ray-node-type": "worker", "ray-user-node-type": kind, "ray-node-name": kind}
        provider.create_node(node, tags, 1)
    nodes = provider.non_terminated_nodes({})
    assert len(nodes) == 2
    provider.set_node_tags(nodes[0], {"ray-node-status": "up-to-date"})
    tagged = boto3.client("ec2").describe_instances(InstanceIds=nodes)["Reservations"]
    for instance in (instance for reservation in tagged for instance in reservation["Instances"]):
        assert {"Key": "ray-cluster-name", "Value": "objectaware"} in instance["Tags"]  # what the conditions ask for
        assert fnmatch(instance["IamInstanceProfile"]["Arn"], "*/objectaware-worker")
    provider.terminate_nodes(nodes)
    assert "ec2:RunInstances" in calls
    assert calls <= actions("head")
