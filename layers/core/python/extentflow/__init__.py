"""extentflow streams S3 objects of any size into Kafka, exactly once, extent by extent."""

__version__ = "0.1.0"
