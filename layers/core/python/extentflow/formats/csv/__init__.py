"""CSV files: where records begin, fields, and types."""
