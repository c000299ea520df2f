# build.sh: builds the service, and creates a self-signed RSA-4096 certificate.
set -eu
mvn -q -B process-classes
rm -f target/tariffs.p12
keytool -genkeypair -alias tariffs -keyalg RSA -keysize 4096 -validity 36500 -dname CN=localhost \
    -ext san=dns:localhost,ip:127.0.0.1 -storetype PKCS12 -keystore target/tariffs.p12 -storepass changeit \
    2> target/keytool.log
