# start.sh RUN SITE DELAY LOG_RATE: runs H2O with the configuration in the directory RUN. SITE
# selects the site; see system.toml. DELAY is the response time of the upstream in milliseconds. If
# LOG_RATE is not 0, a log collector reads LOG_RATE bytes per second from H2O.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

run=$1
upstream=$(free_port)
case $2 in
proxy)
    if [ "$3" = 0 ]; then
        echo "server { listen 127.0.0.1:$upstream; return 200 'Hello World'; }" > "$run/listen.conf"
        nginx -p "$run" -e stderr -c nginx.conf &
    else
        node ../node-http/server.js --port "$upstream" --work "$3" &
    fi
    ;;
tls)
    sed "s|UPSTREAM|$upstream|; s|TARGET|$PWD/target|" second-tls.conf >> "$run/h2o.conf"
    ;;
esac
if [ "$4" != 0 ]; then
    mkfifo "$run/log"
    python3 ../../servers/slow.py "$4" < "$run/log" &
    echo "access-log: $run/log" >> "$run/h2o.conf"
fi
sed "s/UPSTREAM/$upstream/" "site-$2.conf" > "$run/site.conf"
cp site-hello.conf "$run"
cd "$run"
exec h2o -c h2o.conf
