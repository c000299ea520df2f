# start.sh RUN HOST PORT DELAY POOL_MAX: starts the upstream, which takes DELAY milliseconds per
# request, and then Varnish with the configuration in the directory RUN. POOL_MAX is the maximum
# number of threads in Varnish's only thread pool.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
upstream=$(free_port)
if [ "$4" = 0 ]; then
    echo "server { listen 127.0.0.1:$upstream; return 200 'Hello World'; }" > "$run/listen.conf"
    nginx -p "$run" -e stderr -c nginx.conf &
else
    node ../node-http/server.js --port "$upstream" --work "$4" &
fi
until is_open "$upstream"; do
    sleep 0.05
done
sed "s/UPSTREAM/$upstream/" "$run/cache.vcl" > "$run/filled.vcl"
# Varnish would reject requests that find neither a free thread nor room in a queue of 20 requests.
exec varnishd -F -j none -n "$run/varnish" -f "$run/filled.vcl" -a "$2:$3" -s default,16m \
    -p thread_pools=1 -p thread_pool_min=5 -p thread_pool_max="$5" -p thread_queue_limit=1000
