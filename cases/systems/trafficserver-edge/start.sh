# start.sh RUN HOST PORT [NAME=VALUE ...]: starts the upstream, and then Traffic Server with its
# files in the directory RUN. system.toml describes the variables. If DELAY is not 0, the upstream
# is a Node service that takes DELAY milliseconds per request. Otherwise it is nginx.
#
# SITE has two more values. Both serve a report at /report from the cache:
#   compressed  caches the compressed report
#   compress    caches the plain report, and compresses it for each request
set -eu
cd "$(dirname "$0")"

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
host=$2
port=$3
shift 3

SITE=page
DELAY=0
LOG_RATE=1000000000
CLIENT_KEEPALIVE=1
UPSTREAM_KEEPALIVE=1
ORIGIN_MAX=0
EXEC_THREADS=2
QUOTA=0
for variable; do
    export "${variable?}"
done
if [ "$QUOTA" != 0 ]; then
    exec sh ../../servers/quota.sh "$QUOTA" sh start.sh "$run" "$host" "$port" "$@" QUOTA=0
fi

upstream=$(free_port)
cache=1
plugins=
case $SITE in
    dynamic)
        cache=0
        ;;
    log)
        mkfifo "$run/log"
        python3 ../../servers/slow.py "$LOG_RATE" < "$run/log" &
        plugins="@plugin=tslua.so @pparam=$PWD/log.lua @pparam=$run/log"
        ;;
    compressed | compress)
        compressed=true
        if [ "$SITE" = compress ]; then
            compressed=false
        fi
        sed "s/CACHE/$compressed/" compress.config > "$run/compress.config"
        cp accept.conf "$run"
        plugins="@plugin=header_rewrite.so @pparam=$run/accept.conf"
        plugins="$plugins @plugin=compress.so @pparam=$run/compress.config"
        ;;
esac

if [ "$DELAY" = 0 ]; then
    cat > "$run/listen.conf" << END
server {
    listen 127.0.0.1:$upstream;
    add_header Cache-Control max-age=3600;
    location / { return 200 'Hello World'; }
    location /report { root $run; }
}
END
    awk 'BEGIN { for (i = 1; i <= 3000; i++) print i, i * 7919 % 104729, "booked, desk", i % 17 }' \
        > "$run/report"
    cp nginx.conf "$run"
    # The user "nobody", which nginx would change to, may be unable to read this directory.
    nginx -p "$run" -e stderr -c nginx.conf -g "user $(id -un);" &
else
    node ../node-http/server.js --port "$upstream" --work "$DELAY" &
fi
until is_open "$upstream"; do
    sleep 0.05
done

mkdir -p "$run/etc" "$run/cache" "$run/logs" "$run/state"
cat > "$run/runroot.yaml" << END
prefix: $run
sysconfdir: $run/etc
cachedir: $run/cache
logdir: $run/logs
localstatedir: $run/state
runtimedir: $run/state
bindir: $(dirname "$(command -v traffic_server)")
libexecdir: $(traffic_layout info 2> /dev/null | sed -n 's/^PLUGINDIR: //p')
END
cat > "$run/etc/records.config" << END
CONFIG proxy.config.http.server_ports STRING $port:ip-in=$host
# Keep the user that starts the server.
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.crash_log_helper STRING NULL
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.cache.ram_cache.size INT 16777216
CONFIG proxy.config.http.keep_alive_enabled_in INT $CLIENT_KEEPALIVE
CONFIG proxy.config.http.keep_alive_enabled_out INT $UPSTREAM_KEEPALIVE
# All threads share their idle upstream connections.
CONFIG proxy.config.http.server_session_sharing.pool STRING global
CONFIG proxy.config.http.per_server.connection.max INT $ORIGIN_MAX
CONFIG proxy.config.http.per_server.connection.queue_size INT 1000
CONFIG proxy.config.http.per_server.connection.queue_delay INT 10
CONFIG proxy.config.http.cache.http INT $cache
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT $EXEC_THREADS
END
cp ip_allow.yaml "$run/etc"
echo "map / http://127.0.0.1:$upstream/ $plugins" > "$run/etc/remap.config"
echo "$run/cache 32M" > "$run/etc/storage.config"
export TS_RUNROOT="$run"
exec traffic_server
