# Builds the server and copies its libraries into target/.
set -eu
mvn -q -B process-classes
