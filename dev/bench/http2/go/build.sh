# Builds the server into target/.
set -eu
go build -o target/server .
