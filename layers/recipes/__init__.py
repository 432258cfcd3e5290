"""Recipes that build the Lambda layer of dependencies and the archive of Spark jobs."""
