// A small order service on Bun's own HTTP server, SQL client and fetch. See system.toml.
import { SQL, spawn } from 'bun';

const { HANDLER, HOST, PORT, STORE, POOL, LEVEL, SLOTS, CONNECTION } = process.env;

const rows = Array.from({ length: 500 }, (_, i) => ({ id: i, name: `customer ${i}`, price: i * 1.25 }));
const text = rows.map((row) => JSON.stringify({ ...row, random: Math.random() })).join('\n');

function escape(value) {
  return String(value).replace(/[&<>]/g, (c) => `&#${c.charCodeAt(0)};`);
}

function page() {
  const cells = rows.map((row) => `<tr><td>${row.id}<td>${escape(row.name)}<td>${row.price.toFixed(2)}`);
  return Buffer.from(cells.join('\n')).length;
}

// Limits the jobs that run at a time, as the package p-limit does.
let free = Number(SLOTS);
const waiting = [];
async function limited(job) {
  if (free > 0) free -= 1;
  else await new Promise((resolve) => waiting.push(resolve));
  try {
    return await job();
  } finally {
    if (waiting.length > 0) waiting.shift()();
    else free += 1;
  }
}

// Starts the upstream, which responds after 50 ms. It ends with this process.
async function upstream() {
  const command = ['python3', '../slow-upstream/upstream.py', '50'];
  const process = spawn(command, { stdin: 'pipe', stdout: 'pipe' });
  const { value } = await process.stdout.getReader().read();
  return { url: `http://127.0.0.1:${new TextDecoder().decode(value).trim()}/price`, process };
}

async function fetchPrice() {
  const stock = await upstream();
  return async () => {
    const response = await fetch(stock.url);
    if ((await response.text()) !== 'price') throw new Error('unexpected response');
  };
}

function report() {
  const sql = new SQL(`postgres://bars@${STORE}/bars`, { max: Number(POOL) });
  return () => sql`SELECT pg_sleep(0.02)`;
}

const handlers = {
  hello: () => () => {},
  page: () => page,
  export: () => () => Bun.gzipSync(text, { level: Number(LEVEL) }),
  slots: () => () => limited(() => Bun.sleep(20)),
  price: fetchPrice,
  report,
};
const work = await handlers[HANDLER]();

Bun.serve({
  hostname: HOST,
  port: Number(PORT),
  async fetch() {
    await work();
    const headers = { 'Content-Type': 'text/plain' };
    if (CONNECTION === 'close') headers.Connection = 'close';
    return new Response('Hello World', { headers });
  },
});
