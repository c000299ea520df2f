// A server with configurable faults on Node's event loop. See ../README.md.
'use strict';
const fs = require('fs');
const net = require('net');
const path = require('path');
const { spawn } = require('child_process');

const options = { sleep: 0, lock: 0, burn: 0, body: 11, 'close-after': 0, 'two-writes': false, backlog: 1024, limit: 0, errors: 0,
  host: '127.0.0.1', log: false, upstream: -1, 'upstream-pool': 64, 'upstream-fresh': false, slots: 0 };
const port = Number(process.argv[2]);
for (let i = 3; i < process.argv.length; i++) {
  const name = process.argv[i].slice(2);
  if (!(name in options)) throw new Error(`unknown option ${process.argv[i]}`);
  const kind = typeof options[name];
  options[name] = kind === 'boolean' ? true : kind === 'string' ? process.argv[++i] : Number(process.argv[++i]);
}

const BODY = 'x'.repeat(options.body);
const REASONS = { 200: 'OK', 429: 'Too Many Requests', 500: 'Internal Server Error' };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A token bucket with a burst of a tenth of its rate.
let tokens = options.limit / 10;
let filled = performance.now();
function take() {
  const now = performance.now();
  tokens = Math.min(options.limit / 10, tokens + (now - filled) / 1000 * options.limit);
  filled = now;
  if (tokens < 1) return false;
  tokens -= 1;
  return true;
}

// A FIFO semaphore.
class Slots {
  constructor(free) { this.free = free; this.waiting = []; }
  async enter() {
    if (this.free > 0) { this.free -= 1; return; }
    await new Promise((done) => this.waiting.push(done));
  }
  leave() {
    const next = this.waiting.shift();
    if (next) next(); else this.free += 1;
  }
}

// Access to the upstream process, with a connection pool or a fresh connection per request.
class Store {
  constructor(ms, connections, fresh) {
    this.fresh = fresh;
    this.slots = new Slots(connections);
    this.connections = [];
    const behind = spawn('python3', [path.join(__dirname, 'store.py'), String(ms)], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.opened = new Promise((done) => behind.stdout.once('data', (data) => {
      this.port = Number(data);
      for (let i = 0; i < connections && !fresh; i++) this.connections.push(this.connect());
      done();
    }));
  }
  connect() {
    const socket = net.connect(this.port, '127.0.0.1');
    socket.setNoDelay(true);
    return socket;
  }
  async ask() {
    await this.slots.enter();
    const socket = this.fresh ? this.connect() : this.connections.pop();
    await new Promise((done) => { socket.once('data', done); socket.write('ask\n'); });
    if (this.fresh) socket.end(); else this.connections.push(socket);
    this.slots.leave();
  }
}
const store = options.upstream < 0 ? null : new Store(options.upstream, options['upstream-pool'], options['upstream-fresh']);
const one = new Slots(1);
const slots = options.slots ? new Slots(options.slots) : null;

function burn(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

async function answer(number) {
  if (options.limit && !take()) return 429;
  if (slots) await slots.enter();
  if (options.sleep) await pause(options.sleep);
  if (slots) slots.leave();
  if (options.burn) burn(options.burn);
  if (options.lock) {
    await one.enter();
    await pause(options.lock);
    one.leave();
  }
  if (store) await store.ask();
  // Write directly, because Node's stdout stream would buffer lines for a slow reader.
  if (options.log) fs.writeSync(1, `response number ${number} sent with status 200, logged by a line with the length of a usual access log.\n`);
  return options.errors && number % 100 < options.errors ? 500 : 200;
}

let number = 0;
const server = net.createServer((socket) => {
  let rest = '';
  let busy = false;
  let answered = 0;
  socket.setNoDelay(!options['two-writes']);
  socket.on('error', () => {});
  socket.on('data', (data) => { rest += data.toString('latin1'); next(); });
  async function next() {
    const end = rest.indexOf('\r\n\r\n');
    if (busy || end < 0) return;
    busy = true;
    const closes = rest.slice(0, end).toLowerCase().includes('connection: close');
    rest = rest.slice(end + 4);
    const status = await answer(++number);
    answered += 1;
    const last = closes || (options['close-after'] > 0 && answered >= options['close-after']);
    const body = status === 200 ? BODY : 'refused';
    const head = `HTTP/1.1 ${status} ${REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length: ${body.length}\r\n${last ? 'Connection: close\r\n' : ''}\r\n`;
    if (options['two-writes']) {
      socket.write(head);
      await new Promise((done) => setImmediate(done));
      socket.write(body);
    } else {
      socket.write(head + body);
    }
    busy = false;
    if (last) socket.end(); else next();
  }
});
(store ? store.opened : Promise.resolve()).then(() => server.listen({ port, host: options.host, backlog: options.backlog }));
