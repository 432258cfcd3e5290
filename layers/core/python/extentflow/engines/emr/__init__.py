"""Remote runs on EMR Serverless, a service of AWS for Spark."""
