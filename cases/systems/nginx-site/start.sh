# start.sh RUN LOG_RATE: runs nginx with the configuration in the directory RUN. If LOG_RATE is not
# 0, a log collector reads LOG_RATE bytes per second from nginx's standard output.
set -eu
run=$1
log_rate=$2

if [ "$log_rate" = 0 ]; then
    echo "access_log access.log;" > "$run/log.conf"
    exec nginx -p "$run" -e stderr -c nginx.conf
fi
echo "access_log /dev/stdout;" > "$run/log.conf"
nginx -p "$run" -e stderr -c nginx.conf | python3 ../../servers/slow.py "$log_rate"
