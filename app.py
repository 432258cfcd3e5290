"""The CDK application. `python app.py` synthesises; `-c stage=NAME` of the CDK's CLI chooses."""

import json
import os
import sys
from pathlib import Path

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks
from infra.project import Project
from infra.stack import ExtentflowStack
from infra.stages import chosen

from extentflow.errors import Misconfigured

settings = json.loads(Path(__file__).with_name("cdk.json").read_text())
output, context = os.environ.get("CDK_OUTDIR", settings["output"]), settings["context"]
app = cdk.App(outdir=output, context=context, analytics_reporting=False)
cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
try:
    ExtentflowStack(app, stage=chosen(app.node.get_context("stage")), project=Project())
except Misconfigured as exc:
    sys.exit("\n".join(f"error: {problem}" for problem in exc.problems))
app.synth()
