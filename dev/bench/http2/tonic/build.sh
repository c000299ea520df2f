# Builds the server into target/.
set -eu
cargo build --release --locked --quiet --target-dir target
