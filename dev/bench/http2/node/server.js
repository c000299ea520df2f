'use strict'

// An HTTP/2 server: server.js RUN PORT http|https. It uses the certificate in the directory RUN,
// and writes a line per request to RUN/access.log before it exits on SIGTERM.

const fs = require('node:fs')
const http2 = require('node:http2')

const [run, port, scheme] = process.argv.slice(2)
const log = fs.openSync(`${run}/access.log`, 'w')
let lines = []

function flush() {
  fs.writeSync(log, lines.join(''))
  lines = []
}

function handle(request, response) {
  lines.push(`HTTP/${request.httpVersion} 200\n`)
  if (lines.length >= 10000) flush()
  response.setHeader('content-type', 'text/plain')
  response.end('Hello World')
}

const server =
  scheme === 'https'
    ? http2.createSecureServer(
        { cert: fs.readFileSync(`${run}/cert.pem`), key: fs.readFileSync(`${run}/key.pem`) },
        handle,
      )
    : http2.createServer(handle)
process.on('SIGTERM', () => {
  flush()
  process.exit(0)
})
server.listen(Number(port), '127.0.0.1')
