// A member of a share group (KIP-932): arguments bootstrap servers, group, topic. Ends by itself.

import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class ShareMember {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (var member = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            member.subscribe(List.of(arguments[2]));
            // The first answers may come before the brokers know the group.
            for (int polls = 0; polls < 10; polls++) {
                member.poll(Duration.ofMillis(200));
            }
        }
    }
}
