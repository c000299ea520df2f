# start.sh RUN: runs PHP-FPM and nginx with the configuration in the directory RUN, until a signal
# arrives.
set -eu
cd "$1"
case $APP in
count-*) php schema.php ;;
esac
php-fpm8.2 --allow-to-run-as-root --prefix . --fpm-config php-fpm.conf -d opcache.enable="$OPCACHE" &
fpm=$!
nginx -p . -e stderr -c nginx.conf &
nginx=$!
trap 'kill "$nginx" "$fpm" 2> /dev/null || true' TERM INT EXIT
wait "$nginx" "$fpm" || true
# Wait until both have stopped after a signal.
wait
