# java.sh [JVM OPTIONS] Faulty ARGUMENTS: compiles Faulty.java if the file has changed, and runs java.
set -eu
here=$(dirname "$0")
jar=$here/target/faulty.jar
if ! [ "$jar" -nt "$here/Faulty.java" ]; then
    mkdir -p "$here/target"
    # Scripts may run at the same time, so each compiles a copy and replaces the jar atomically.
    new=$(mktemp -d "$here/target/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    javac -d "$new/classes" "$here/Faulty.java"
    jar --create --file "$new/faulty.jar" -C "$new/classes" .
    mv "$new/faulty.jar" "$jar"
    rm -rf "$new"
fi
exec java -cp "$jar" "$@"
