// A blog on Deno. The environment variable HANDLER selects the handler; see system.toml.
import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import pg from "pg";

const POSTS = 10_000;
const option = (name) => Deno.env.get(name);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Renders a list of posts.
function page(posts) {
  const rows = Array.from({ length: posts }, (_, i) => `<li><a href=/posts/${i}>post ${(i * 7919) % posts}</a>`);
  return rows.join("\n");
}

// Returns a handler that waits for 20 ms while it holds one of the slots.
function slots(free) {
  const waiting = [];
  return async () => {
    if (free > 0) free--;
    else await new Promise((resolve) => waiting.push(resolve));
    await sleep(20);
    const next = waiting.shift();
    if (next) next();
    else free++;
  };
}

function hash() {
  let sum = Buffer.from("post");
  for (let i = 0; i < 1000; i++) sum = createHash("sha256").update(sum).digest();
}

function exportTable() {
  const table = page(3000);
  const level = Number(option("LEVEL"));
  return () => gzipSync(table, { level });
}

// Returns a handler that appends a line to the journal.
function journal(durable) {
  const file = Deno.openSync(`${option("RUN")}/journal`, { create: true, append: true });
  const line = new TextEncoder().encode("comment added\n");
  return () => {
    file.writeSync(line);
    if (durable) file.syncDataSync();
  };
}

// Returns a handler that calls the upstream.
function price() {
  const settings = option("UPSTREAM_CONNECTION") === "close" ? { poolMaxIdlePerHost: 0 } : {};
  const client = Deno.createHttpClient(settings);
  return async () => {
    await (await fetch(option("UPSTREAM"), { client })).text();
  };
}

async function openPool() {
  const [host, port] = option("STORE").split(":");
  const address = { host, port: Number(port), user: "bars", database: "bars" };
  const pool = new pg.Pool({ ...address, max: Number(option("POOL")), allowExitOnIdle: true });
  await pool.query(`CREATE TABLE posts AS SELECT id, 0 AS likes FROM generate_series(1, ${POSTS}) AS id`);
  await pool.query("ALTER TABLE posts ADD PRIMARY KEY (id)");
  return pool;
}

async function search() {
  const pool = await openPool();
  return () => pool.query("SELECT pg_sleep(0.02)");
}

// Returns a handler that updates a post in a transaction that takes 10 ms.
async function like(posts) {
  const pool = await openPool();
  return async () => {
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query("UPDATE posts SET likes = likes + 1 WHERE id = $1", [1 + Math.floor(Math.random() * posts)]);
    await sleep(10);
    await client.query("COMMIT");
    client.release();
  };
}

const handlers = {
  hello: () => () => {},
  sleep: () => () => sleep(20),
  page: () => () => page(1000),
  hash: () => hash,
  export: exportTable,
  slots: () => slots(Number(option("SLOTS"))),
  journal: () => journal(false),
  "durable-journal": () => journal(true),
  log: () => () => console.log("GET / 200 11 blog"),
  price,
  search,
  like: () => like(POSTS),
  "like-one": () => like(1),
};
const work = await handlers[option("HANDLER")]();
const headers = { "content-type": "text/plain" };
if (option("CONNECTION") === "close") headers.connection = "close";

export default {
  async fetch() {
    await work();
    return new Response("Hello World", { headers });
  },
};
