"""The CDK application. `python app.py` synthesises; `-c stage=NAME` of the CDK's CLI chooses."""

import json
import os
from pathlib import Path

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks
from infra.project import Project
from infra.stack import ExtentflowStack
from infra.stages import STAGES

settings = json.loads(Path(__file__).with_name("cdk.json").read_text())
app = cdk.App(
    outdir=os.environ.get("CDK_OUTDIR", settings["output"]),
    context=settings["context"],
    analytics_reporting=False,
)
cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
ExtentflowStack(app, stage=STAGES[app.node.get_context("stage")], project=Project())
app.synth()
