# start.sh RUN UPSTREAM COUNT LOG_RATE QUOTA: starts the upstreams, and then nghttpx with the
# configuration in the directory RUN. UPSTREAM is the kind of the upstreams and COUNT their number;
# see system.toml. If LOG_RATE is not 0, it is the number of bytes per second that a log collector
# reads from the access log. If QUOTA is not 0, it is a CPU quota in microseconds per 100,000
# microseconds.
set -eu

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
upstream=$2
count=$3
log_rate=$4
quota=$5
if [ "$quota" != 0 ]; then
    exec sh ../../servers/quota.sh "$quota" sh start.sh "$run" "$upstream" "$count" "$log_rate" 0
fi

while [ "$count" != 0 ]; do
    count=$((count - 1))
    port=$(free_port)
    parameters=
    case $upstream in
        nginx | tls)
            ssl=
            if [ "$upstream" = tls ]; then
                ssl="ssl; ssl_certificate $PWD/target/upstream.crt; ssl_certificate_key $PWD/target/upstream.key"
                parameters=';;tls'
            fi
            echo "server { listen 127.0.0.1:$port $ssl; location / { return 200 'Hello World'; } }" > "$run/listen.conf"
            # The user "nobody", which nginx would change to, may be unable to read this directory.
            nginx -p "$run" -e stderr -c nginx.conf -g "user $(id -un);" &
            ;;
        quotes)
            node quotes.js "$port" &
            ;;
        slow)
            node ../node-http/server.js --port "$port" --work 20 &
            ;;
    esac
    until is_open "$port"; do
        sleep 0.05
    done
    echo "backend=127.0.0.1,$port$parameters" >> "$run/nghttpx.conf"
done
if [ "$log_rate" != 0 ]; then
    mkfifo "$run/access"
    python3 ../../servers/slow.py "$log_rate" < "$run/access" &
fi
exec nghttpx --conf="$run/nghttpx.conf"
