# serve.sh SERVER HOST PORT WORKERS THREADS CONNECTIONS: serves app.py with a WSGI server in the foreground.
set -eu
server=$1
host=$2
port=$3
workers=$4
threads=$5
connections=$6
case $server in
gunicorn-sync)
    exec target/venv/bin/gunicorn --bind "$host:$port" --preload --worker-class sync --workers "$workers" --graceful-timeout 1 app:app
    ;;
gunicorn-gthread)
    exec target/venv/bin/gunicorn --bind "$host:$port" --preload --worker-class gthread --workers "$workers" --threads "$threads" --graceful-timeout 1 app:app
    ;;
waitress)
    exec target/venv/bin/waitress-serve --host "$host" --port "$port" --threads "$threads" --connection-limit "$connections" app:app
    ;;
flask)
    exec target/venv/bin/flask --app app run --host "$host" --port "$port"
    ;;
*)
    echo "serve.sh: unknown server \"$server\"" >&2
    exit 2
    ;;
esac
