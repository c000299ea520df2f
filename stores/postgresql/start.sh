# start.sh PORT DATA [HOST] [COMMIT] [ROW_MS]: runs PostgreSQL in the foreground, with all files in
# the directory DATA. COMMIT is the value of synchronous_commit. ROW_MS is the time that each row
# inserted into the table bar takes, in ms (0: no added time).
# The role and the database are named bars.
set -eu
port=${1:?which port? sh start.sh PORT DATA [HOST] [COMMIT] [ROW_MS]}
data=${2:?which directory? sh start.sh PORT DATA [HOST] [COMMIT] [ROW_MS]}
host=${3:-127.0.0.1} commit=${4:-on} row_ms=${5:-0}

here=$(cd "$(dirname "$0")" && pwd)
bin=$here/target/server/bin
if [ ! -x "$bin/postgres" ]; then
    echo "$bin/postgres is missing; build it with: mvn -q -B package" >&2
    exit 2
fi
mkdir -p "$data"
data=$(cd "$data" && pwd)

# PostgreSQL refuses to run as root. In a user namespace without a mapping, PostgreSQL runs as
# nobody, and the files keep their owner. When the namespace ends, the kernel removes the shared
# memory (shmget(2)) that locks the cluster.
as=
if unshare --user --ipc true 2> /dev/null; then
    as="unshare --user --ipc"
elif [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chown 65534:65534 "$data"
    if ! $as test -w "$data"; then
        echo "$data: user 65534 has no access to this directory, and user namespaces are not allowed; use another directory or run as another user" >&2
        exit 2
    fi
fi

# Replace an incomplete cluster.
if [ ! -d "$data/cluster" ]; then
    rm -rf "$data/cluster.new"
    $as "$bin/initdb" -D "$data/cluster.new" -U bars --auth=trust --encoding=UTF8 --locale=C --no-sync > "$data/initdb.log" 2>&1 || {
        cat "$data/initdb.log" >&2
        exit 1
    }
    echo "CREATE DATABASE bars" | $as "$bin/postgres" --single -D "$data/cluster.new" postgres > "$data/initdb.log" 2>&1
    if [ "$row_ms" != 0 ]; then
        $as "$bin/postgres" --single -j -c exit_on_error=true -D "$data/cluster.new" bars < "$here/slow-rows.sql" > "$data/initdb.log" 2>&1
    fi
    mv "$data/cluster.new" "$data/cluster"
fi

# Keep shared memory in files of the cluster, so that a killed server leaves no files in /dev/shm.
exec $as "$bin/postgres" -D "$data/cluster" -c listen_addresses="$host" -c port="$port" -c unix_socket_directories= \
    -c max_connections=300 -c synchronous_commit="$commit" -c bars.row_ms="$row_ms" -c dynamic_shared_memory_type=mmap
