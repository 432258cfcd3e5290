"""CloudFormation's functions in values."""

from typing import Any

import pytest

from extentflow_local.aws.event_source.intrinsics import NO_VALUE, UnresolvedValue, resolve


def look(name: str, attribute: str | None) -> str:
    if name == "Unknown":
        raise UnresolvedValue("Unknown is not known here")
    return f"<{name}>" if attribute is None else f"<{name}.{attribute}>"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("text", "text"),
        (170, 170),
        (True, True),
        (None, None),
        ({"Ref": "Queue"}, "<Queue>"),
        ({"Ref": "AWS::NoValue"}, NO_VALUE),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "<Queue.Arn>"),
        ({"Fn::GetAtt": "Queue.Arn"}, "<Queue.Arn>"),
        ({"Fn::GetAtt": ["Stack", "Outputs.Url"]}, "<Stack.Outputs.Url>"),
        ({"Fn::Join": ["/", ["a", {"Ref": "B"}]]}, "a/<B>"),
        ({"Fn::Join": ["", []]}, ""),
        ({"Fn::Split": ["/", "a/b"]}, ["a", "b"]),
        ({"Fn::Select": [1, {"Fn::Split": ["/", "a/b"]}]}, "b"),
        ({"Fn::Select": ["0", [{"Ref": "A"}, "b"]]}, "<A>"),
        ({"Fn::Sub": "${A}:${B.Arn}:${!C}:${AWS::Region}"}, "<A>:<B.Arn>:${C}:<AWS::Region>"),
        ({"Fn::Sub": ["${x}-${A}", {"x": {"Ref": "X"}}]}, "<X>-<A>"),
        ({"a": {"Ref": "B"}, "c": [{"Ref": "D"}]}, {"a": "<B>", "c": ["<D>"]}),
        ({"a": 1, "b": {"Ref": "AWS::NoValue"}}, {"a": 1}),
        ([1, {"Ref": "AWS::NoValue"}], [1]),
    ],
)
def test_values_are_resolved(value: object, found: object) -> None:
    assert resolve(value, look) == found


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"Ref": "Unknown"}, "Unknown is not known"),
        ({"Fn::Sub": "${Unknown}"}, "Unknown is not known"),
        ({"Fn::ImportValue": "x"}, "Fn::ImportValue is not supported"),
        ({"Fn::Select": [7, ["a"]]}, "Fn::Select of .* is malformed"),
        ({"Fn::Join": ["a"]}, "Fn::Join of .* is malformed"),
        ({"deep": [{"Fn::GetAtt": ["Unknown", "Arn"]}]}, "Unknown is not known"),
    ],
)
def test_what_cannot_be_resolved_is_named(value: Any, why: str) -> None:  # noqa: ANN401 - any JSON
    with pytest.raises(UnresolvedValue, match=why):
        resolve(value, look)
