"""The two layers of every function: the library, and its dependencies.

Synthesis only refers to what `make layers` has built:

    built from the current pins   the layer
    missing, or of older pins     a placeholder, a warning, and a rule with which CloudFormation
                                  rejects the deployment
"""

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from .missing import refuse_deployment
from .project import Project
from .recipes import lambda_layer

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64
NOT_CODE = ["**/__pycache__", "**/*.pyc", "**/*.egg-info"]

REMEDY = "the dependency layer is missing or was built from other pins; run `{} layers`"


class Layers(Construct):
    """Both layers, in the order in which functions get them."""

    def __init__(self, scope: Construct, construct_id: str, *, project: Project) -> None:
        super().__init__(scope, construct_id)
        found = lambda_layer.built(project.root)
        if found is None:
            refuse_deployment(self, "DepsLayer", REMEDY.format(project.command))
        deps = project.root / lambda_layer.LAYER if found else project.placeholder
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
