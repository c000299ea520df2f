// Luggage tracking on hapi. See system.toml for the arguments.
const { execFile, execFileSync, spawn } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs, promisify } = require('node:util');
const zlib = require('node:zlib');
const Hapi = require('@hapi/hapi');
const Wreck = require('@hapi/wreck');
const AsyncLock = require('async-lock');
const genericPool = require('generic-pool');
const Handlebars = require('handlebars');
const knex = require('knex');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string' },
    port: { type: 'string' },
    run: { type: 'string' },
    store: { type: 'string' },
    app: { type: 'string' },
    belts: { type: 'string' },
    scanners: { type: 'string' },
    sockets: { type: 'string' },
    pool: { type: 'string' },
    quality: { type: 'string' },
    'max-requests': { type: 'string' },
    'path-limit': { type: 'string' },
    misreads: { type: 'string' },
  },
});
const BAGS = 1000;
const number = (name) => Number(options[name]);

async function connect() {
  const [host, port] = options.store.split(':');
  const size = number('pool');
  const database = knex({
    client: 'pg',
    connection: { host, port, user: 'bars', database: 'bars' },
    pool: { min: size, max: size },
  });
  await database.raw(`CREATE TABLE bags AS SELECT id, 0 AS scans FROM generate_series(1, ${BAGS}) AS id`);
  await database.raw('ALTER TABLE bags ADD PRIMARY KEY (id)');
  return database;
}

// Returns a handler that scans one of COUNT bags in a transaction that takes 10 ms.
async function scan(count) {
  const database = await connect();
  return () => database.transaction(async (transaction) => {
    const id = 1 + Math.floor(Math.random() * count);
    await transaction('bags').where({ id }).forUpdate().first();
    await sleep(10);
    await transaction('bags').where({ id }).increment('scans');
  });
}

// Returns a handler that appends a line to the journal on the event loop.
function journal(flush) {
  const file = path.join(options.run, 'journal');
  return async () => fs.appendFileSync(file, `${new Date().toISOString()} bag loaded\n`, { flush });
}

function bags(count) {
  return Array.from({ length: count }, (_, i) => ({ tag: `bag <${i}>`, flight: `FM ${i * 7919 % 900}`, weight: i % 32 }));
}

const apps = {
  hello: () => async () => {},

  pause: () => () => sleep(20),

  manifest() {
    const template = Handlebars.compile('<ul>{{#each bags}}<li>{{tag}} on {{flight}}: {{weight}} kg{{/each}}</ul>');
    const list = bags(300);
    return async () => template({ bags: list });
  },

  archive() {
    const list = JSON.stringify(bags(300));
    const params = { [zlib.constants.BROTLI_PARAM_QUALITY]: number('quality') };
    return async () => zlib.brotliCompressSync(list, { params });
  },

  // Prints a label with a program that takes 20 ms.
  label() {
    const run = promisify(execFile);
    return () => run('sleep', ['0.02']);
  },

  'label-sync': () => async () => execFileSync('sleep', ['0.02']),

  belt() {
    const lock = new AsyncLock({ maxPending: 10000 });
    let next = 0;
    return () => lock.acquire(String(next++ % number('belts')), () => sleep(10));
  },

  scanner() {
    const size = number('scanners');
    const scanners = genericPool.createPool({ create: async () => ({}), destroy: async () => {} }, { min: size, max: size });
    return () => scanners.use(() => sleep(20));
  },

  // Reads a tag in 10 ms. Hapi turns a misread into status 500.
  tag: () => async () => {
    await sleep(10);
    if (Math.random() * 100 < number('misreads')) {
      throw new Error('the tag is not readable');
    }
  },

  // Calls the airline, which responds after 20 ms.
  async airline() {
    const upstream = spawn('python3', ['../slow-upstream/upstream.py', '20'], { stdio: ['pipe', 'pipe', 'inherit'] });
    const [port] = await once(upstream.stdout, 'data');
    const agent = new http.Agent({ keepAlive: true, maxSockets: number('sockets') });
    return () => Wreck.get(`http://127.0.0.1:${String(port).trim()}/flight`, { agent });
  },

  async report() {
    const database = await connect();
    return () => database.raw('SELECT pg_sleep(0.02)');
  },

  scan: () => scan(BAGS),
  'scan-one': () => scan(1),
  journal: () => journal(false),
  'durable-journal': () => journal(true),
};

async function main() {
  const handle = await apps[options.app]();
  const listener = http.createServer();
  listener.maxRequestsPerSocket = number('max-requests');
  const server = Hapi.server({ host: options.host, port: number('port'), listener, debug: false });
  if (number('path-limit') > 0) {
    await server.register({
      plugin: require('hapi-rate-limit'),
      options: {
        userLimit: false,
        authLimit: false,
        pathLimit: number('path-limit'),
        pathCache: { expiresIn: 1000 },
      },
    });
  }
  server.route({
    method: 'GET',
    path: '/',
    handler: async (request, h) => {
      await handle();
      return h.response('Hello World').type('text/plain');
    },
  });
  await server.start();
}

main();
