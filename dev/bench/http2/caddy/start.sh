# start.sh RUN PORT http|https
set -eu
echo "Caddy $(caddy version)" > "$1/version"
tls=
if [ "$3" = https ]; then
    tls="tls $1/cert.pem $1/key.pem"
fi
cat > "$1/Caddyfile" << END
{
	admin off
	auto_https off
	servers {
		protocols h1 h2 h2c
	}
}
$3://localhost:$2 {
	bind 127.0.0.1
	$tls
	log {
		output file $1/caddy.log {
			roll_disabled
		}
		format filter {
			wrap json
			fields {
				request>headers delete
				request>tls delete
				resp_headers delete
			}
		}
	}
	respond "Hello World"
}
END
export HOME="$1" XDG_DATA_HOME="$1" XDG_CONFIG_HOME="$1"
caddy run --config "$1/Caddyfile" --adapter caddyfile &
# SIGTERM also ends Caddy, which is in the same process group.
trap : TERM
wait || true
wait
awk -F '"proto":"|","method"|,"status":|}' '{ print $2, $5 }' "$1/caddy.log" > "$1/access.log"
