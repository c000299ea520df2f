# start.sh PORT STORAGE_PORT DATA [HEAP] [HOST]: one Cassandra node in the foreground, all its files in the folder DATA.
set -eu
port=${1:?which port? sh start.sh PORT STORAGE_PORT DATA [HEAP] [HOST]}
storage_port=${2:?which port between nodes? sh start.sh PORT STORAGE_PORT DATA [HEAP] [HOST]}
data=${3:?which folder? sh start.sh PORT STORAGE_PORT DATA [HEAP] [HOST]}
heap=${4:-256m} host=${5:-127.0.0.1}

here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$here/target/lib" ]; then
    echo "$here/target/lib is missing; build it with: mvn -q -B package" >&2
    exit 2
fi
mkdir -p "$data/conf" "$data/tmp" "$data/triggers"
data=$(cd "$data" && pwd)
sed -e "s|@DATA@|$data|" -e "s|@HOST@|$host|" -e "s|@PORT@|$port|" -e "s|@STORAGE_PORT@|$storage_port|" "$here/cassandra.yaml" > "$data/conf/cassandra.yaml"
# What a killed node left there is of no use to the next.
rm -rf "$data/tmp"/*

# Cassandra 5.0 reaches into these modules of Java 17. JMX, which would need more of them and a port, stays off. Alone, a node has
# nobody whose news it should wait for.
exec java -Xms"$heap" -Xmx"$heap" -XX:+UseSerialGC -Xss512k -XX:MaxDirectMemorySize=128m -XX:+ExitOnOutOfMemoryError \
    -javaagent:"$here/target/lib/jamm-0.4.0.jar" -Djdk.attach.allowAttachSelf=true \
    --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/jdk.internal.ref=ALL-UNNAMED \
    --add-exports java.base/jdk.internal.misc=ALL-UNNAMED --add-opens java.base/java.io=ALL-UNNAMED \
    --add-opens java.base/java.lang=ALL-UNNAMED --add-opens java.base/java.util=ALL-UNNAMED \
    -Djava.io.tmpdir="$data/tmp" -Dcassandra.triggers_dir="$data/triggers" -Dcassandra.storagedir="$data" \
    -Dcassandra.config="file://$data/conf/cassandra.yaml" -Dlogback.configurationFile="$here/logback.xml" \
    -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra-foreground=yes \
    -cp "$here/target/lib/*" org.apache.cassandra.service.CassandraDaemon
