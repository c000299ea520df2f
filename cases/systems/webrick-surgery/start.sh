# start.sh RUN LOG_RATE QUOTA: starts the service. If LOG_RATE is not 0, it is the number of bytes
# per second that a log collector reads. If QUOTA is not 0, it is a CPU quota in microseconds per
# 100,000 microseconds.
set -eu
if [ "$2" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$2" < "$1/log" &
    exec 2> "$1/log"
fi
if [ "$3" != 0 ]; then
    exec sh ../../servers/quota.sh "$3" ruby app.rb
fi
exec ruby app.rb
