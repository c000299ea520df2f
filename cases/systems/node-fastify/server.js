// A reservation service on Fastify.
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const zlib = require('node:zlib');
const { Mutex } = require('async-mutex');
const Fastify = require('fastify');
const pLimit = require('p-limit');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string' },
    port: { type: 'string' },
    // What the service does for `GET /`.
    handler: { type: 'string' },
    // Maximum number of reservations at a time.
    concurrency: { type: 'string' },
    // Compression level of the archive.
    level: { type: 'string' },
    // Maximum number of requests per connection; 0 for no limit.
    requests: { type: 'string' },
  },
});

const limit = pLimit(Number(options.concurrency));
const mutex = new Mutex();
const rows = Array.from({ length: 600 }, (_, row) => ({ row, seat: (row * 7919) % 1000, price: Math.sqrt(row) }));

const handlers = {
  async hello() {},
  reserve: () => limit(() => sleep(20)),
  cancel: () => mutex.runExclusive(() => sleep(5)),
  async archive() {
    zlib.gzipSync(JSON.stringify(rows), { level: Number(options.level) });
  },
};

const server = Fastify();
server.server.maxRequestsPerSocket = Number(options.requests);
server.get('/', async (request, reply) => {
  await handlers[options.handler]();
  reply.type('text/plain');
  return 'Hello World';
});
server.listen({ host: options.host, port: Number(options.port) });
