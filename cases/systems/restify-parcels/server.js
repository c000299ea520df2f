// Parcel service on Restify. See system.toml for the arguments.
const http = require('node:http');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const { Mutex } = require('async-mutex');
const pg = require('pg');
const pino = require('pino');
const restify = require('restify');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string' },
    port: { type: 'string' },
    store: { type: 'string' },
    upstream: { type: 'string' },
    app: { type: 'string' },
    'keep-alive': { type: 'string' },
    pool: { type: 'string' },
    kept: { type: 'string' },
    rate: { type: 'string' },
    inflight: { type: 'string' },
    'max-connections': { type: 'string' },
    log: { type: 'string' },
  },
});
const PARCELS = 1000;
const number = (name) => Number(options[name]);

async function connect() {
  const [host, port] = options.store.split(':');
  const pool = new pg.Pool({ host, port, user: 'bars', database: 'bars', max: number('pool') });
  await pool.query(`CREATE TABLE parcels AS SELECT id, 0 AS scans FROM generate_series(1, ${PARCELS}) AS id`);
  await pool.query('ALTER TABLE parcels ADD PRIMARY KEY (id)');
  return pool;
}

// Returns a handler that scans one of COUNT parcels in a transaction that takes 10 ms.
async function scan(count) {
  const pool = await connect();
  return async () => {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const parcel = 1 + Math.floor(Math.random() * count);
      await client.query('UPDATE parcels SET scans = scans + 1 WHERE id = $1', [parcel]);
      await sleep(10);
      await client.query('COMMIT');
    } finally {
      client.release();
    }
  };
}

const apps = {
  hello: () => async () => {},
  weigh: () => () => sleep(20),
  gate: () => () => sleep(10),

  'gate-locked'() {
    const mutex = new Mutex();
    return () => mutex.runExclusive(() => sleep(10));
  },

  manifest() {
    const parcels = Array.from({ length: 400 }, (_, i) => ({ to: `street <${i}>`, grams: (i * 7919) % 5000 }));
    const escape = (text) => text.replace(/[<>&]/g, (sign) => `&#${sign.charCodeAt(0)};`);
    return async () => {
      parcels.map((parcel) => `<li>${escape(parcel.to)}: ${(parcel.grams / 1000).toFixed(3)} kg`).join('');
    };
  },

  // Replaces 2,000 of the parcels in memory.
  sort() {
    const parcels = new Array(number('kept'));
    let next = 0;
    const replace = () => {
      parcels[next % parcels.length] = { id: next, position: [next, next + 1] };
      next += 1;
    };
    parcels.fill().forEach(replace);
    return async () => {
      for (let i = 0; i < 2000; i++) {
        replace();
      }
    };
  },

  track() {
    const agent = new http.Agent({ keepAlive: options['keep-alive'] === 'true' });
    return () =>
      new Promise((resolve, reject) => {
        const call = http.get(options.upstream, { agent }, (response) => {
          response.resume();
          response.on('end', resolve);
        });
        call.on('error', reject);
      });
  },

  report: async () => {
    const pool = await connect();
    return () => pool.query('SELECT pg_sleep(0.02)');
  },

  scan: () => scan(PARCELS),
  'scan-one': () => scan(1),
};

async function main() {
  const handle = await apps[options.app]();
  // The logger writes each line to stdout at once, on the event loop.
  const log = pino(pino.destination({ dest: 1, sync: true }));
  const server = restify.createServer({ log });
  if (options['max-connections'] !== '0') {
    server.server.maxConnections = number('max-connections');
  }
  if (options.rate !== '0') {
    server.pre(restify.plugins.throttle({ rate: number('rate'), burst: number('rate'), ip: true }));
  }
  if (options.inflight !== '0') {
    server.pre(restify.plugins.inflightRequestThrottle({ limit: number('inflight'), server }));
  }
  server.get('/', async (request, response) => {
    await handle();
    response.contentType = 'text/plain';
    response.send(200, 'Hello World');
  });
  if (options.log === 'true') {
    server.on('after', restify.plugins.auditLogger({ log, event: 'after', server }));
  }
  server.listen(number('port'), options.host);
}

main();
