# start.sh RUN PORT http|https
set -eu
cargo metadata --locked --format-version 1 |
    sed 's/.*"name":"tonic","version":"\([^"]*\)".*/Tonic \1/' > "$1/version"
exec target/release/http2-tonic "$@"
