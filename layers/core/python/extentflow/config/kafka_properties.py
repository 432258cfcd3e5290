"""The Kafka client properties that a user may set, and the reason why each other one is refused.

Names are those of librdkafka 2.16; a test compares them with the installed client, which checks the
values itself. Callbacks, pointers and consumer properties are left out, and so are properties that
librdkafka documents as no-ops: an option that is accepted and ignored misleads.

Tests: unit/config/test_files.py
"""

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLIENT_PROPERTIES: frozenset[str] = _words(
    """
    api.version.fallback.ms api.version.request
    api.version.request.timeout.ms broker.address.family broker.address.ttl broker.version.fallback
    client.dns.lookup client.id client.rack connections.max.idle.ms debug
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification https.ca.location https.ca.pem log.connection.close
    log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    message.copy.max.bytes metadata.max.age.ms receive.message.max.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config
    sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location
    ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers
    ssl.sigalgs.list topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
    """
)

# A connector's author need not be the worker's owner. What is not listed here is the owner's:
# transport security, Kerberos, providers, token servers, files of the worker, and time-outs.
# A connector may have a principal of its own, so its credentials are listed.
PRODUCER_PROPERTIES: frozenset[str] = _words(
    """
    api.version.fallback.ms api.version.request broker.address.family broker.address.ttl
    broker.version.fallback client.dns.lookup client.id client.rack connections.max.idle.ms debug
    enable.metrics.push enable.random.seed log.connection.close log.thread.name log_level
    max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes metadata.max.age.ms
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
    retry.backoff.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
    socket.receive.buffer.bytes socket.send.buffer.bytes
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.extensions
    sasl.oauthbearer.scope sasl.password sasl.username
    ssl.certificate.pem ssl.key.password ssl.key.pem
    batch.num.messages batch.size compression.codec compression.level compression.type linger.ms
    message.max.bytes message.send.max.retries partitioner queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms retries
    sticky.partitioning.linger.ms
    """
)

_OWNERS = CLIENT_PROPERTIES - PRODUCER_PROPERTIES

# Of the installed client, read and not offered: callbacks, consumers' own, and no-ops. A
# property of a new client is in none of these lists; a test demands a decision about it.
NOT_OFFERED: frozenset[str] = _words(
    """
    auto.commit.enable auto.commit.interval.ms background_event_cb builtin.features check.crcs
    closesocket_cb connect_cb consume.callback.max.messages consume_cb coordinator.query.interval.ms
    default_topic_conf dr_cb dr_msg_cb enable.auto.offset.store enable.partition.eof enabled_events
    error_cb fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
    fetch.queue.backoff.ms fetch.wait.max.ms group.protocol group.protocol.type
    group.remote.assignor heartbeat.interval.ms internal.termination.signal log.queue log_cb
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records msg_order_cmp
    oauthbearer_token_refresh_cb offset.store.method offset.store.path offset.store.sync.interval.ms
    offset_commit_cb opaque open_cb partition.assignment.strategy partitioner_cb
    produce.offset.report queued.max.messages.kbytes queued.min.messages rebalance_cb
    reconnect.backoff.jitter.ms resolve_cb session.timeout.ms share.acknowledgement.mode
    socket.blocking.max.ms socket_cb ssl.certificate.verify_cb ssl_ca ssl_certificate
    ssl_engine_callback_data ssl_key stats_cb throttle_cb topic.metadata.refresh.fast.cnt
    """
)

SECRET_PROPERTIES: frozenset[str] = _words(
    """
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.secret sasl.password
    ssl.key.password ssl.key.pem ssl.keystore.password
    """
)

# Reasons with their remedies, and the properties that are refused for them.
REFUSALS = {
    "fixed here, exactly once depends on it; remove the key": (
        "acks request.required.acks enable.idempotence enable.gapless.guarantee queuing.strategy"
        " delivery.report.only.error"
    ),
    "every worker's slot has its own; set app.id to separate installations": "transactional.id",
    "fixed to none, a thawed worker would stall otherwise; remove the key": (
        "metadata.recovery.strategy"
    ),
    "fixed to false, topics are not created by accident; create the topic and remove the key": (
        "allow.auto.create.topics"
    ),
    "without effect, metadata.recovery.strategy is fixed to none; remove the key": (
        "metadata.recovery.rebootstrap.trigger.ms"
    ),
    "a worker setting of its own: write transaction.timeout.ms in the worker's settings": (
        "transaction.timeout.ms"
    ),
    "a worker setting of its own: write bootstrap.servers in the worker's settings": (
        "bootstrap.servers metadata.broker.list"
    ),
    "follows the worker setting transaction.timeout.ms; set that and remove the key": (
        "message.timeout.ms request.timeout.ms max.block.ms delivery.timeout.ms"
    ),
    "would load code into the worker; remove the key": (
        "plugin.library.paths ssl.engine.location ssl.engine.id interceptors interceptor.classes"
    ),
    "the client's statistics are not read; remove the key": "statistics.interval.ms",
    # Its patterns are read by the C library, whose stack and memory a long one exhausts.
    "hides topics; remove the key": "topic.blacklist",
    "a consumer's property, and nothing here consumes records; remove the key": (
        "group.id group.instance.id isolation.level auto.offset.reset enable.auto.commit"
    ),
    "key.converter of the connector decides that; remove the key": "key.serializer",
    "value.converter of the connector decides that; remove the key": "value.serializer",
    "the Java client's name; write producer.queue.buffering.max.kbytes": "buffer.memory",
    "the Java client's name; write producer.message.max.bytes": "max.request.size",
    "the Java client's name; write producer.partitioner": "partitioner.class",
    "the Java client's; write sasl.username and sasl.password": "sasl.jaas.config",
    "the client reads no Java key stores; use ssl.ca.location or ssl.ca.pem": (
        "ssl.truststore.location ssl.truststore.password ssl.truststore.type"
    ),
}
REFUSED_PROPERTIES = {name: reason for reason, names in REFUSALS.items() for name in names.split()}
REFUSED_PRODUCER_PROPERTIES: Mapping[str, str] = REFUSED_PROPERTIES | {
    name: f"the worker's to say; write kafka.{name} in the worker's settings"
    for name in sorted(_OWNERS)
}
# For all clients of a worker: what only producers understand belongs to connectors.
REFUSED_CLIENT_PROPERTIES: Mapping[str, str] = REFUSED_PROPERTIES | {
    name: f"concerns producers only; write producer.{name} in the connector"
    for name in sorted(PRODUCER_PROPERTIES - CLIENT_PROPERTIES)
}
