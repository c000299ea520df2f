# start.sh RUN LOG LOG_RATE QUOTA: starts the gym. If LOG is on, CivetWeb writes an access log. If
# LOG_RATE is not 0, it is the number of bytes per second that a log collector reads. If QUOTA is not
# 0, it is a CPU quota in microseconds per 100,000 microseconds.
set -eu
export ACCESS_LOG_FILE=
if [ "$2" = on ]; then
    export ACCESS_LOG_FILE="$1/log"
fi
if [ "$3" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$3" < "$1/log" &
    # CivetWeb opens and closes the log for each request. The collector ends when nobody has it open.
    exec 3> "$1/log"
fi
if [ "$4" != 0 ]; then
    exec sh ../../servers/quota.sh "$4" target/gym
fi
exec target/gym
