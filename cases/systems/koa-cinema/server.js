// Cinema tickets on Koa. See system.toml for the arguments.
const { spawn } = require('node:child_process');
const { pbkdf2 } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { once } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs, promisify } = require('node:util');
const Bottleneck = require('bottleneck');
const Koa = require('koa');
const pg = require('pg');
const pino = require('pino');
const Piscina = require('piscina');
const { Agent, request } = require('undici');

const { values: options } = parseArgs({
  options: {
    host: { type: 'string' },
    port: { type: 'string' },
    run: { type: 'string' },
    store: { type: 'string' },
    app: { type: 'string' },
    pool: { type: 'string' },
    threads: { type: 'string' },
    concurrent: { type: 'string' },
    interval: { type: 'string' },
    connections: { type: 'string' },
    log: { type: 'string' },
    failures: { type: 'string' },
  },
});
const SEATS = 1000;
const number = (name) => Number(options[name]);

// Starts the upstream, which responds after 20 ms, and returns its URL.
async function startUpstream() {
  const upstream = spawn('python3', ['../slow-upstream/upstream.py', '20'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [port] = await once(upstream.stdout, 'data');
  return `http://127.0.0.1:${String(port).trim()}/price`;
}

async function connect() {
  const [host, port] = options.store.split(':');
  const pool = new pg.Pool({ host, port, user: 'bars', database: 'bars', max: number('pool') });
  await pool.query(`CREATE TABLE seats AS SELECT id, 0 AS sold FROM generate_series(1, ${SEATS}) AS id`);
  await pool.query('ALTER TABLE seats ADD PRIMARY KEY (id)');
  return pool;
}

// Returns a handler that sells one of COUNT seats in a transaction that takes 10 ms.
async function sell(count) {
  const pool = await connect();
  return async () => {
    const client = await pool.connect();
    try {
      await client.query('BEGIN');
      const seat = 1 + Math.floor(Math.random() * count);
      await client.query('UPDATE seats SET sold = sold + 1 WHERE id = $1', [seat]);
      await sleep(10);
      await client.query('COMMIT');
    } finally {
      client.release();
    }
  };
}

// Returns a handler that appends a line to the journal.
function journal(isDurable) {
  const file = fs.openSync(path.join(options.run, 'journal'), 'a');
  return async () => {
    fs.writeSync(file, `${new Date().toISOString()} ticket sold\n`);
    if (isDurable) {
      fs.fsyncSync(file);
    }
  };
}

const apps = {
  hello: () => async () => {},

  program() {
    const films = Array.from({ length: 400 }, (_, i) => ({ title: `film <${i}>`, room: i % 9, price: Math.sqrt(i) }));
    const escape = (text) => text.replace(/[<>&]/g, (sign) => `&#${sign.charCodeAt(0)};`);
    return async () => {
      films.map((film) => `<li>${escape(film.title)} in room ${film.room}: ${film.price.toFixed(2)}`).join('');
    };
  },

  ticket() {
    const pool = new Piscina({
      filename: path.join(__dirname, 'worker.js'),
      minThreads: number('threads'),
      maxThreads: number('threads'),
    });
    return () => pool.run();
  },

  login() {
    const derive = promisify(pbkdf2);
    return () => derive('password', 'salt', 20000, 64, 'sha512');
  },

  seat() {
    const limiter = new Bottleneck({ maxConcurrent: number('concurrent'), minTime: number('interval') });
    return limiter.wrap(() => sleep(20));
  },

  report: async () => {
    const pool = await connect();
    return () => pool.query('SELECT pg_sleep(0.02)');
  },

  sell: () => sell(SEATS),
  'sell-one': () => sell(1),
  journal: () => journal(false),
  'durable-journal': () => journal(true),

  async price() {
    const url = await startUpstream();
    const dispatcher = new Agent({ connections: number('connections') });
    return async () => {
      const { body } = await request(url, { dispatcher });
      await body.dump();
    };
  },

  // The payment provider rejects the first attempts at each payment. A retry waits for 80 ms.
  pay: () => async () => {
    for (let failures = number('failures'); failures > 0; failures--) {
      await sleep(80);
    }
    await sleep(20);
  },
};

async function main() {
  const handle = await apps[options.app]();
  const app = new Koa();
  if (options.log === 'on') {
    // Pino writes each line to stdout at once, on the event loop.
    const logger = pino(pino.destination({ dest: 1, sync: true }));
    app.use(async (ctx, next) => {
      await next();
      logger.info({ method: ctx.method, url: ctx.url, status: ctx.status });
    });
  }
  app.use(async (ctx) => {
    await handle();
    ctx.type = 'text/plain';
    ctx.body = 'Hello World';
  });
  app.listen({ host: options.host, port: number('port'), backlog: 1024 });
}

main();
