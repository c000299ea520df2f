// A service on Node's http2 module, without TLS.
const cluster = require('node:cluster');
const http2 = require('node:http2');
const { createHash } = require('node:crypto');
const { parseArgs } = require('node:util');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string' },
    // Number of worker processes. If the number is 0, the process serves requests itself.
    workers: { type: 'string', default: '0' },
    // Maximum number of streams on a connection.
    streams: { type: 'string', default: '100' },
    // Time for which a request waits, in milliseconds.
    wait: { type: 'string', default: '0' },
    // Number of times that a request hashes 64 KiB.
    hashes: { type: 'string', default: '0' },
  },
});

const block = Buffer.alloc(65536);

function hash() {
  const sum = createHash('sha256');
  for (let i = 0; i < Number(options.hashes); i++) sum.update(block);
  return sum.digest('hex');
}

function serve() {
  const settings = { maxConcurrentStreams: Number(options.streams) };
  const server = http2.createServer({ settings }, (request, response) => {
    if (Number(options.hashes)) hash();
    const respond = () => response.end('Hello World');
    if (Number(options.wait)) setTimeout(respond, Number(options.wait));
    else respond();
  });
  server.listen(Number(options.port), options.host);
}

if (Number(options.workers) && cluster.isPrimary) {
  for (let i = 0; i < Number(options.workers); i++) cluster.fork();
} else {
  serve();
}
