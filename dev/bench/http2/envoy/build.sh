# Installs the pinned package into target/venv.
set -eu
rm -rf target
python3 -m venv target/venv
target/venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
