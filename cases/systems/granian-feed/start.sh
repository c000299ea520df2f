# start.sh OPTIONS...: starts Granian with these options. If there is a store, creates a table in it
# first.
set -eu
if [ "$STORE" != none ]; then
    target/venv/bin/python app.py
fi
exec target/venv/bin/granian "$@"
