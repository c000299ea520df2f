# start.sh RUN PORT http|https
set -eu
nginx -v 2>&1 | sed 's/.*: //' > "$1/version"
case $3 in http) ssl= ;; https) ssl=ssl ;; esac
echo "listen 127.0.0.1:$2 $ssl http2;" > "$1/listen.conf"
cp nginx.conf "$1"
exec nginx -p "$1" -e stderr -c nginx.conf -g "user $(id -un);"
