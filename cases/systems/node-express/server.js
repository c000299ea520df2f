// An account service on Express and PostgreSQL.
const crypto = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { Pool } = require('pg');

const ACCOUNTS = 100000;

const { values: options } = parseArgs({
  options: {
    host: { type: 'string' },
    port: { type: 'string' },
    store: { type: 'string' },
    // What the service does for `GET /`.
    handler: { type: 'string' },
    // Iterations of the password hash.
    iterations: { type: 'string' },
    // Maximum number of requests per second; 0 for no limit.
    limit: { type: 'string' },
    // Maximum number of connections to PostgreSQL.
    pool: { type: 'string' },
    // Whether e-mail addresses have an index.
    index: { type: 'string' },
    // Number of accounts that payments go to.
    payees: { type: 'string' },
  },
});

const [host, port] = options.store.split(':');
const pool = new Pool({ host, port, user: 'bars', database: 'bars', max: Number(options.pool) });
const random = () => 1 + Math.floor(Math.random() * ACCOUNTS);

const handlers = {
  async hello() {},

  async login() {
    crypto.pbkdf2Sync('password', 'salt', Number(options.iterations), 32, 'sha256');
  },

  async report() {
    await pool.query('SELECT pg_sleep(0.02), count(*) FROM accounts WHERE id < 100');
  },

  async find() {
    await pool.query('SELECT id FROM accounts WHERE email = $1', [`user${random()}@example.org`]);
  },

  async pay() {
    const client = await pool.connect();
    try {
      const payee = 1 + Math.floor(Math.random() * Number(options.payees));
      await client.query('BEGIN');
      await client.query('UPDATE accounts SET balance = balance + 1 WHERE id = $1', [payee]);
      await sleep(10); // Notifies the payee.
      await client.query('COMMIT');
    } finally {
      client.release();
    }
  },
};

async function prepare() {
  if (options.store === 'none') return;
  await pool.query('CREATE TABLE accounts (id int PRIMARY KEY, email text, balance int)');
  await pool.query(
    "INSERT INTO accounts SELECT id, 'user' || id || '@example.org', 0 FROM generate_series(1, $1::int) id",
    [ACCOUNTS],
  );
  if (options.index === 'on') await pool.query('CREATE INDEX ON accounts (email)');
  await pool.query('VACUUM ANALYZE accounts');
}

const app = express();
if (Number(options.limit)) {
  app.use(rateLimit({ windowMs: 1000, limit: Number(options.limit) }));
}
app.get('/', (request, response, next) => {
  handlers[options.handler]().then(() => response.type('text').send('Hello World'), next);
});
prepare().then(() => app.listen(Number(options.port), options.host));
