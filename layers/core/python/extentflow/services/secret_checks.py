"""Whether secrets and keys that a planned stage names serve it: their state, values and policies.

Tests: unit/services/test_account_checks.py
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from extentflow.services.aws_calls import AwsCalls
from extentflow.services.health import Finding
from extentflow.services.planned import PlannedKey, PlannedSecret

SYMMETRIC = "SYMMETRIC_DEFAULT"
CURRENT = "AWSCURRENT"
DECRYPT, DATA_KEY = "kms:Decrypt", "kms:GenerateDataKey"
KEY_POLICY = "docs/key-policy.json"
_REGION_OF_ARN, _ACCOUNT_OF_ARN = 3, 4


@dataclass(frozen=True)
class SecretChecks:
    """Checks secrets and keys of a stage in `region` of `account`.

    `own` are the ids of what the stage has created, its roles among them.
    """

    region: str
    account: str
    calls: AwsCalls
    own: frozenset[str]

    def secret(self, secret: PlannedSecret) -> Iterator[Finding]:
        """Yield a finding about a secret that exists already."""
        absent, id_ = ("ResourceNotFoundException",), secret.id
        if far := self._far(f"secret {id_}", id_, "secretsmanager describe-secret --secret-id"):
            yield far
            return
        answer = self.calls.find("secretsmanager", "describe_secret", absent, SecretId=id_)
        check = f"secret {id_}"
        if answer is None:
            yield Finding(check, "problem", "it does not exist", "create it, or correct its ARN")
        elif answer.get("DeletedDate"):
            remedy = f"`aws secretsmanager restore-secret --secret-id {id_}`"
            yield Finding(check, "problem", "it is being deleted", remedy)
        elif id_.startswith("arn:") and id_ != (whole := answer["ARN"]):
            fact = f"its ARN is {whole}: permission to read {id_} does not cover it"
            yield Finding(check, "problem", fact, "write the complete ARN, with its last letters")
        elif _is_own_key(key := answer.get("KmsKeyId")) and not self._decrypts(secret, str(key)):
            fact = f"it is encrypted with {key}, which {secret.key_option} does not name"
            remedy = f"write the key's ARN in {secret.key_option}: its readers may not decrypt it"
            yield Finding(check, "problem", fact, remedy)
        else:
            yield self._value(check, secret, answer)

    def _value(self, check: str, secret: PlannedSecret, described: Mapping[str, Any]) -> Finding:
        """Report whether the current value is one that the stage can use, as far as it is shown."""
        labels = described.get("VersionIdsToStages", {}).values()
        put = f"`aws secretsmanager put-secret-value --secret-id {secret.id} --secret-string ...`"
        if not any(CURRENT in each for each in labels):
            return Finding(check, "problem", f"it has no value: no version is {CURRENT}", put)
        hidden = dict.fromkeys(("AccessDeniedException", "DecryptionFailure"))
        found = self.calls.coded("secretsmanager", "get_secret_value", hidden, SecretId=secret.id)
        if found is None:
            return Finding(check, "ok", "it exists; these credentials may not read its value")
        text = found.get("SecretString")
        if not text:
            return Finding(check, "problem", "its value is no text", put)
        if lacking := _lacking(text, secret.members):
            fact = f"its value is no JSON object with a text for {', '.join(lacking)}"
            return Finding(check, "problem", fact, put)
        return Finding(check, "ok", "it exists and has a value")

    def _far(self, check: str, name: str, command: str) -> Finding | None:
        """Return that something is in another region than the stage, which is not asked."""
        region = name.split(":")[_REGION_OF_ARN] if name.startswith("arn:") else self.region
        if region == self.region:
            return None
        fact = f"it is in {region}, the stage in {self.region}: not checked"
        return Finding(check, "warning", fact, f"`aws {command} {name} --region {region}`")

    def _decrypts(self, secret: PlannedSecret, key: str) -> bool:
        """Whether readers may decrypt with a key, which AWS returns by ARN, id or alias."""
        if "alias/" in key:
            key = self.calls.call("kms", "describe_key", KeyId=key)["KeyMetadata"]["Arn"]
        return any(one == key or one.endswith(f"/{key}") for one in secret.keys)

    def key(self, key: PlannedKey) -> Iterator[Finding]:
        """Yield a finding about a key that exists already."""
        check, arn = f"key {key.arn}", key.arn
        if far := self._far(check, arn, "kms describe-key --key-id"):
            yield far
            return
        answer = self.calls.find("kms", "describe_key", ("NotFoundException",), KeyId=arn)
        if answer is None:
            yield Finding(check, "problem", "it does not exist", "correct its ARN")
        elif (kind := answer["KeyMetadata"].get("KeySpec", SYMMETRIC)) != SYMMETRIC:
            fact = f"it is of kind {kind}, with which services encrypt nothing"
            yield Finding(check, "problem", fact, f"create a key of kind {SYMMETRIC}")
        elif (state := answer["KeyMetadata"]["KeyState"]) != "Enabled":
            yield Finding(
                check, "problem", f"it is {state}", f"`aws kms enable-key --key-id {arn}`"
            )
        else:
            yield self._admission(check, key)

    def _admission(self, check: str, key: PlannedKey) -> Finding:
        """Report whether the policy of a key admits the stage; AWS shows it to its account only."""
        owner = key.arn.split(":")[_ACCOUNT_OF_ARN]
        if owner != self.account:
            fact = f"it is enabled; account {owner} does not show its policy"
            return Finding(check, "warning", fact, f"ask {owner} whether it admits {self.account}")
        asked = {"KeyId": key.arn, "PolicyName": "default"}
        found = self.calls.coded("kms", "get_key_policy", {"AccessDeniedException": None}, **asked)
        if found is None:
            fact = "it is enabled; these credentials may not read its policy"
            remedy = f"allow kms:GetKeyPolicy, or compare the policy with {KEY_POLICY}"
            return Finding(check, "warning", fact, remedy)
        given = json.loads(found["Policy"])["Statement"]
        statements = [given] if isinstance(given, dict) else given
        left = [one for one in key.services if not _admits(statements, {one}, DATA_KEY)]
        roles = {name.rpartition("/")[2] for name in self.own} - {""}
        account = {self.account, f"{self.account}:root"}
        if not _admits(statements, account | roles, DECRYPT):
            left.append(f"{self.account}:root or the roles of the stage")
        if left:
            fact = f"its policy does not admit {', '.join(left)}"
            return Finding(check, "problem", fact, f"add their statements of {KEY_POLICY}")
        return Finding(check, "ok", "it is enabled, and its policy admits the stage")


def _is_own_key(key: str | None) -> bool:
    """Whether a secret's key is the customer's; AWS's own has an alias, or is not named."""
    return key is not None and not key.startswith("alias/aws/") and ":alias/aws/" not in key


def _lacking(text: str, members: tuple[str, ...]) -> list[str]:
    """Return which members are no texts of a JSON object; all, if there is no such object."""
    try:
        found = json.loads(text) if members else {}
    except (ValueError, RecursionError):
        found = {}
    entries = found if isinstance(found, dict) else {}
    return [one for one in members if not (isinstance(entries.get(one), str) and entries[one])]


def _admits(statements: Iterable[Mapping[str, Any]], names: Collection[str], action: str) -> bool:
    """Whether statements of a policy allow one of the principals an action, conditions aside."""
    for one in statements:
        actions = one.get("Action", ())
        patterns = [actions] if isinstance(actions, str) else actions
        allows = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)
        named = {"*", *names} & {*_principals(one.get("Principal", {}))}
        if one["Effect"] == "Allow" and allows and named:
            return True
    return False


def _principals(given: str | Mapping[str, str | list[str]]) -> Iterator[str]:
    """Yield services by the first part of their name, roots as `ACCOUNT:root`, roles by name."""
    if isinstance(given, str):
        yield given
        return
    for kind, named in given.items():
        for name in [named] if isinstance(named, str) else named:
            if kind == "Service":
                yield name.partition(".")[0]
            else:
                yield name.rpartition("::" if name.endswith(":root") else "/")[2]
