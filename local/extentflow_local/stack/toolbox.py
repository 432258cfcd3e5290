"""Programs and libraries for services and benchmarks."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from extentflow_local.stack import programs
from extentflow_local.stack.components import read_lock
from extentflow_local.stack.fetch import Fetcher
from extentflow_local.stack.ivy import Ivy
from extentflow_local.stack.servers import Toolbox
from extentflow_local.stack.settings import LocalSettings


def toolbox(settings: LocalSettings, notify: Callable[[str], None] = lambda _line: None) -> Toolbox:
    """Return a toolbox that finds programs and fetches libraries at most once, on first use."""

    @cache
    def java() -> Path:
        return programs.java(home=settings.java_home, search_path=settings.search_path)

    @cache
    def library(component: str) -> Path:
        ivy = Ivy(java(), programs.spark_jar("ivy"), settings.ivy_settings)
        return Fetcher(settings.cache, ivy, notify=notify).folder(read_lock()[component])

    @cache
    def weed() -> Path:
        return programs.weed(search_path=settings.search_path)

    return Toolbox(java=java, weed=weed, library=library, spark_jar=programs.spark_jar)


def spark_kafka_jars(settings: LocalSettings | None = None) -> list[Path]:
    """Return the jars of Spark's own Kafka sink, for comparison in benchmarks."""
    folder = toolbox(settings or LocalSettings.from_environment()).library("spark-kafka")
    return sorted(folder.glob("*.jar"))
