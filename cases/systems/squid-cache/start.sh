# start.sh RUN CACHE REWRITERS LOG_RATE QUOTA: starts nginx as the upstream, and then Squid with the
# configuration in the directory RUN. CACHE is allow or deny. REWRITERS is the number of processes
# that rewrite URLs; if it is 0, Squid rewrites none. If LOG_RATE is not 0, a log collector reads
# LOG_RATE bytes per second from Squid. If QUOTA is not 0, it is a CPU quota in microseconds per
# 100,000 microseconds.
set -eu
if [ "$5" != 0 ]; then
    exec sh ../../servers/quota.sh "$5" sh start.sh "$1" "$2" "$3" "$4" 0
fi

free_port() {
    python3 -c 'from socket import *; print(create_server(("127.0.0.1", 0)).getsockname()[1])'
}

is_open() {
    python3 -c "from socket import *; create_connection(('127.0.0.1', $1))" 2> /dev/null
}

run=$1
upstream=$(free_port)
cat > "$run/listen.conf" << END
server {
    listen 127.0.0.1:$upstream;
    add_header Cache-Control max-age=3600;
    return 200 'Hello World';
}
END
nginx -p "$run" -e stderr -c nginx.conf &
until is_open "$upstream"; do
    sleep 0.05
done
{
    echo "cache $2 all"
    echo "cache_peer 127.0.0.1 parent $upstream 0 no-query no-digest originserver"
    if [ "$3" != 0 ]; then
        # Squid changes its user, who may be unable to read this directory.
        cp rewrite.py "$run"
        echo "url_rewrite_program /usr/bin/python3 $run/rewrite.py"
        echo "url_rewrite_children $3 startup=$3 queue-size=1000"
    fi
    if [ "$4" = 0 ]; then
        echo "access_log none"
    else
        mkfifo "$run/log"
        python3 ../../servers/slow.py "$4" < "$run/log" &
        echo "access_log stdio:$run/log"
    fi
} >> "$run/squid.conf"
chmod -R a+rwX "$run"
exec squid -N -f "$run/squid.conf"
