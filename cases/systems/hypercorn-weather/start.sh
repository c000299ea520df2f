# start.sh RUN LOG_RATE: starts Hypercorn with the configuration in the directory RUN. If LOG_RATE
# is not 0, it is the number of bytes per second that a log collector reads.
set -eu
if [ "$2" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$2" < "$1/log" &
    exec > "$1/log" 2>&1
fi
exec target/venv/bin/hypercorn --config "$1/hypercorn.toml" app:app
