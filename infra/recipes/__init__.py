"""Recipes of what is deployed: Lambda layer, archive of Spark jobs, bill of materials."""
