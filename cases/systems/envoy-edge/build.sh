# build.sh: installs the pinned packages into target/venv, and creates a self-signed RSA-4096
# certificate.
set -eu
rm -rf target/venv
python3 -m venv target/venv
target/venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
openssl req -x509 -newkey rsa:4096 -nodes -days 36500 -subj /CN=upstream -keyout target/upstream.key \
    -out target/upstream.crt 2> target/openssl.log
