# start.sh RUN PORT http|https
set -eu
go version | sed 's/.* go\([0-9.]*\) .*/Go net\/http \1/' > "$1/version"
exec target/server "$@"
