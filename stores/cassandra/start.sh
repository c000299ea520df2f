# start.sh PORT STORAGE_PORT DATA [HEAP] [NODES]: runs Cassandra in the foreground, with all files
# in the directory DATA. A single node listens on 127.0.0.1. Three nodes listen on 127.0.0.1,
# 127.0.0.2 and 127.0.0.3.
set -eu
usage="sh start.sh PORT STORAGE_PORT DATA [HEAP] [NODES]"
port=${1:?which port? $usage}
storage_port=${2:?which port between nodes? $usage}
data=${3:?which directory? $usage}
heap=${4:-256m} nodes=${5:-1}

here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$here/target/lib" ]; then
    echo "$here/target/lib is missing; build it with: mvn -q -B package" >&2
    exit 2
fi
mkdir -p "$data"
data=$(cd "$data" && pwd)

# The seed node starts first.
seed=127.0.0.$nodes

# Time to wait for gossip from other nodes, in ms. A single node does not wait.
settle=100
[ "$nodes" = 1 ] || settle=3000

# node ADDRESS: replaces this process with a Cassandra node.
node() {
    # The open port of the last node signals that all nodes are ready. The last node therefore waits for
    # gossip from the other nodes. Otherwise, early tables would be missing on nodes that are not known.
    gossip=0
    if [ "$nodes" != 1 ] && [ "$1" = 127.0.0.1 ]; then
        gossip=-1
    fi
    own=$data/$1
    mkdir -p "$own/conf" "$own/tmp" "$own/triggers"
    sed -e "s|@DATA@|$own|" -e "s|@HOST@|$1|" -e "s|@SEED@|$seed|" -e "s|@PORT@|$port|" -e "s|@STORAGE_PORT@|$storage_port|" \
        "$here/cassandra.yaml" > "$own/conf/cassandra.yaml"
    # Remove the temporary files of a killed node.
    rm -rf "$own/tmp"/*
    # Cassandra 5.0 needs access to these modules of Java 17. JMX is off, because it needs more modules
    # and a port. A node of an empty cluster need not wait for gossip or fetch data.
    exec java -Xms"$heap" -Xmx"$heap" -XX:+UseSerialGC -Xss512k -XX:MaxDirectMemorySize=128m -XX:+ExitOnOutOfMemoryError \
        -javaagent:"$here/target/lib/jamm-0.4.0.jar" -Djdk.attach.allowAttachSelf=true \
        --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/jdk.internal.ref=ALL-UNNAMED \
        --add-exports java.base/jdk.internal.misc=ALL-UNNAMED --add-opens java.base/java.io=ALL-UNNAMED \
        --add-opens java.base/java.lang=ALL-UNNAMED --add-opens java.base/java.util=ALL-UNNAMED \
        -Djava.io.tmpdir="$own/tmp" -Dcassandra.triggers_dir="$own/triggers" -Dcassandra.storagedir="$own" \
        -Dcassandra.config="file://$own/conf/cassandra.yaml" -Dlogback.configurationFile="$here/logback.xml" \
        -Dcassandra.skip_wait_for_gossip_to_settle="$gossip" -Dcassandra.ring_delay_ms="$settle" \
        -Dcassandra.consistent.rangemovement=false -Dcassandra-foreground=yes \
        -cp "$here/target/lib/*" org.apache.cassandra.service.CassandraDaemon
}

if [ "$nodes" = 1 ]; then
    node 127.0.0.1
fi

# The readiness check probes 127.0.0.1, so the node on 127.0.0.1 starts last. Each node waits for
# the previous node, because nodes that join at the same time may claim the same part of the ring.
started=
trap 'kill $started 2> /dev/null || true; wait; exit 0' TERM INT
number=$nodes
while [ "$number" -gt 0 ]; do
    (node "127.0.0.$number") > "$data/node-$number.log" 2>&1 &
    started="$started $!"
    # Find this port in state LISTEN in /proc/net/tcp. Reading the file needs no extra program.
    listening=$(printf '0%d00007F:%04X 0*:0000 0A' "$number" "$port")
    until cat /proc/net/tcp /proc/net/tcp6 2> /dev/null | grep -q "$listening"; do
        if ! kill -0 "$!" 2> /dev/null; then
            cat "$data/node-$number.log" >&2
            kill $started 2> /dev/null || true
            wait
            exit 1
        fi
        sleep 0.2
    done
    number=$((number - 1))
done
# Stop all nodes if any node ends.
while kill -0 $started 2> /dev/null; do
    sleep 0.5 &
    wait $!
done
cat "$data"/node-*.log >&2
kill $started 2> /dev/null || true
wait
exit 1
