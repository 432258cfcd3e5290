"""The two layers of every function: the library, and the packages that it imports.

Owns: where they come from, and that a stack without the second is never deployed. Refuses to know:
what is in them (`layers/deps/recipe.py`). Synthesis only refers to what `make layers` has built:

    built from today's pins   the layer
    missing, or of old pins   a placeholder, a warning, and a rule by which CloudFormation refuses
"""

from aws_cdk import Annotations, CfnParameter, CfnRule, CfnRuleAssertion, Fn, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from layers.deps import recipe

from infra.project import Project

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64
NOT_CODE = ["**/__pycache__", "**/*.pyc", "**/*.egg-info"]

BUILT = "built"
REMEDY = "the layer of imported packages is missing or was built from other pins; run `make layers`"


class Layers(Construct):
    """Both layers, in the order in which functions get them."""

    def __init__(self, scope: Construct, construct_id: str, *, project: Project) -> None:
        super().__init__(scope, construct_id)
        found = recipe.built(project.root)
        if found is None:
            refuse_deployment(self)
        deps = project.root / recipe.LAYER if found else project.placeholder
        self.all = [
            self._layer("Core", "extentflow itself", project.core),
            self._layer("Deps", "What extentflow imports", deps),
        ]

    def _layer(self, name: str, description: str, folder: object) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            name,
            description=description,
            code=lambda_.Code.from_asset(str(folder), exclude=NOT_CODE),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )


def refuse_deployment(scope: Construct) -> None:
    """Let synthesis warn and CloudFormation refuse the stack, at its first look at the template."""
    Annotations.of(scope).add_warning_v2("extentflow:DepsLayerMissing", REMEDY)
    stack = Stack.of(scope)
    parameter = CfnParameter(
        stack, "DepsLayer", default="missing", description="Set by synthesis; not to be given."
    )
    CfnRule(
        stack,
        "DepsLayerIsBuilt",
        assertions=[
            CfnRuleAssertion(
                assert_=Fn.condition_equals(parameter.value_as_string, BUILT),
                assert_description=REMEDY,
            )
        ],
    )
