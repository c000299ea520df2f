# start.sh PORT DATA [HOST]: PostgreSQL with role and database bars in the foreground, all its files in the folder DATA.
set -eu
port=${1:?which port? sh start.sh PORT DATA [HOST]}
data=${2:?which folder? sh start.sh PORT DATA [HOST]}
host=${3:-127.0.0.1}

here=$(cd "$(dirname "$0")" && pwd)
bin=$here/target/server/bin
if [ ! -x "$bin/postgres" ]; then
    echo "$bin/postgres is missing; build it with: mvn -q -B package" >&2
    exit 2
fi
mkdir -p "$data"
data=$(cd "$data" && pwd)

# PostgreSQL does not run as root. In a user namespace without a mapping it is nobody, and its files stay ours. The shared memory that
# it locks its cluster with (shmget(2)) goes with the namespace, however it ends.
as=
if unshare --user --ipc true 2> /dev/null; then
    as="unshare --user --ipc"
elif [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chown 65534:65534 "$data"
    if ! $as test -w "$data"; then
        echo "$data: user 65534 cannot get there, and user namespaces are not allowed; give a folder that it can reach, or start as another user" >&2
        exit 2
    fi
fi

# One that was interrupted halfway is begun anew.
if [ ! -d "$data/cluster" ]; then
    rm -rf "$data/cluster.new"
    $as "$bin/initdb" -D "$data/cluster.new" -U bars --auth=trust --encoding=UTF8 --locale=C --no-sync > "$data/initdb.log" 2>&1 || {
        cat "$data/initdb.log" >&2
        exit 1
    }
    echo "CREATE DATABASE bars" | $as "$bin/postgres" --single -D "$data/cluster.new" postgres > "$data/initdb.log" 2>&1
    mv "$data/cluster.new" "$data/cluster"
fi

# Shared memory as files of the cluster, so that a killed server leaves none in /dev/shm.
exec $as "$bin/postgres" -D "$data/cluster" -c listen_addresses="$host" -c port="$port" -c unix_socket_directories= \
    -c max_connections=300 -c dynamic_shared_memory_type=mmap
