"""The CDK application. `python app.py` synthesises; `-c stage=NAME` of the CDK's CLI chooses."""

from infra.project import Project
from infra.stages import STAGES
from infra.synthesis import synthesise

synthesise(*STAGES, project=Project())
