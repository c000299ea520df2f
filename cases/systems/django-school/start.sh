# start.sh RUN HOST PORT LOG_RATE: starts Django's development server. If LOG_RATE is not 0, it is
# the number of bytes per second that a log collector reads.
set -eu
if [ "$4" != 0 ]; then
    mkfifo "$1/log"
    python3 ../../servers/slow.py "$4" < "$1/log" &
    exec 2> "$1/log"
fi
exec target/venv/bin/python app.py runserver --noreload "$2:$3"
