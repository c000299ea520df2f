// A small order service on Node's http module.
const fs = require('node:fs');
const http = require('node:http');
const { parseArgs } = require('node:util');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string' },
    // Time that an order takes, in milliseconds.
    work: { type: 'string', default: '0' },
    // Port of the stock service.
    stock: { type: 'string', default: '0' },
    // Maximum number of connections to the stock service.
    sockets: { type: 'string', default: '256' },
    // File of the audit log, and whether each entry is flushed to disk.
    audit: { type: 'string' },
    flush: { type: 'string', default: 'off' },
  },
});

const agent = new http.Agent({ keepAlive: true, maxSockets: Number(options.sockets) });
const audit = options.audit && fs.openSync(options.audit, 'a');

function reserve() {
  return new Promise((resolve, reject) => {
    const request = http.get({ host: '127.0.0.1', port: options.stock, agent }, (response) => {
      response.resume();
      response.on('end', resolve);
    });
    request.on('error', reject);
  });
}

function record(event, request) {
  if (!audit) return;
  fs.writeSync(audit, `${new Date().toISOString()} ${event} ${request.method} ${request.url}\n`);
  if (options.flush === 'on') fs.fsyncSync(audit);
}

const server = http.createServer(async (request, response) => {
  try {
    record('received', request);
    if (Number(options.work)) {
      await new Promise((resolve) => setTimeout(resolve, Number(options.work)));
    }
    if (options.stock !== '0') await reserve();
    record('completed', request);
    response.end('Hello World');
  } catch (error) {
    response.writeHead(500).end(error.message);
  }
});
server.listen(Number(options.port), options.host);
