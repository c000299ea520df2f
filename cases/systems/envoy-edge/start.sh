# start.sh RUN HOST PORT CONCURRENCY QUOTA NAME=VALUE...: starts the upstream and then Envoy.
# CONCURRENCY is the number of worker threads. If QUOTA is not 0, it is a CPU quota in microseconds
# per 100,000 microseconds. system.toml describes the names.
set -eu
cd "$(dirname "$0")"
run=$1
host=$2
port=$3
concurrency=$4
quota=$5
if [ "$quota" != 0 ]; then
    shift 5
    exec sh ../../servers/quota.sh "$quota" sh start.sh "$run" "$host" "$port" "$concurrency" 0 "$@"
fi
shift 5

upstream=nginx
for option; do
    case $option in
        upstream=*) upstream=${option#upstream=} ;;
    esac
done
upstream_port=$(python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])')
response="return 200 'Hello World';"
ssl=
case $upstream in
    slow) node ../node-http/server.js --port "$upstream_port" --work 20 & ;;
    tls) ssl="ssl; ssl_certificate $PWD/target/upstream.crt; ssl_certificate_key $PWD/target/upstream.key" ;;
    flaky) response="if (\$http_x_envoy_attempt_count = 1) { return 503; } $response" ;;
    timetable)
        python3 -c 'for i in range(2000): print(i, f"tram {i * 7919 % 97}", f"stop {i * i % 1009}", i * 31 % 1440)' > "$run/timetable"
        response="root $run; rewrite ^ /timetable break;"
        ;;
esac
if [ "$upstream" != slow ]; then
    echo "server { listen 127.0.0.1:$upstream_port $ssl; location / { $response } }" > "$run/listen.conf"
    cp nginx.conf "$run"
    # The user "nobody", which nginx would change to, may be unable to read this directory.
    nginx -p "$run" -e stderr -c nginx.conf -g "user $(id -un);" &
fi
until python3 -c "from socket import *; create_connection(('127.0.0.1', $upstream_port))" 2> /dev/null; do
    sleep 0.05
done
python3 configure.py "$host" "$port" "$upstream_port" "$@" > "$run/envoy.json"
exec target/venv/lib/python3*/site-packages/envoy/_bin/envoy --config-path "$run/envoy.json" \
    --concurrency "$concurrency" --disable-hot-restart --log-level error
