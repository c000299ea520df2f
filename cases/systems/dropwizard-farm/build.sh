# build.sh: builds the service.
set -eu
mvn -q -B process-classes
