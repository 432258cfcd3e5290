"""Decode bytes of JSON documents and Avro records to Arrow columns, wherever the bytes stand.

The package takes texts in one buffer (`arrays.spans`) and a schema. Where records begin in an
object belongs to `formats`, and which schema a message has belongs to `consumer` and `export`.
The other direction, from columns to the bytes of Kafka's records, is `converters`.
"""
