# start.sh RUN PORT http|https
set -eu
echo "Node.js $(node --version)" > "$1/version"
exec node server.js "$@"
