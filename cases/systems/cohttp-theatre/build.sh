# build.sh: compiles the service in target.
set -eu
mkdir -p target
cp theatre.ml target
cd target
ocamlfind ocamlopt -thread -package cohttp-lwt-unix,lwt.unix,postgresql -linkpkg -o theatre theatre.ml
