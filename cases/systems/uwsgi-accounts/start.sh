# start.sh RUN LOG_RATE QUOTA: runs uWSGI and nginx with the configuration in the directory RUN,
# until a signal arrives. If LOG_RATE is not 0, a log collector reads LOG_RATE bytes per second from
# uWSGI. If QUOTA is not 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
if [ "$3" != 0 ]; then
    exec sh ../../servers/quota.sh "$3" sh start.sh "$1" "$2" 0
fi
slow=$PWD/../../servers/slow.py
upstream=$PWD/../slow-upstream/upstream.py
cd "$1"
log_rate=$2
case $APP in
upstream)
    mkfifo stdin
    python3 "$upstream" 50 < stdin > port &
    exec 3> stdin
    until [ -s port ]; do sleep 0.05; done
    ;;
count-*)
    # Debian's psycopg2 belongs to Debian's Python.
    /usr/bin/python3 app.py
    ;;
esac
if [ "$log_rate" = 0 ]; then
    uwsgi --ini uwsgi.ini &
else
    mkfifo log
    python3 "$slow" "$log_rate" < log &
    uwsgi --ini uwsgi.ini > log 2>&1 &
fi
uwsgi=$!
nginx -p . -e stderr -c nginx.conf &
nginx=$!
trap 'kill "$nginx" "$uwsgi" 2> /dev/null || true' TERM INT EXIT
wait "$nginx" "$uwsgi" || true
