// An upstream that computes an insurance quote for each request. The argument is its port.
const http = require('node:http');
const { createHash } = require('node:crypto');

const server = http.createServer((request, response) => {
  let sum = Buffer.alloc(32);
  for (let i = 0; i < 1000; i++) {
    sum = createHash('sha256').update(sum).digest();
  }
  response.end('Hello World');
});
server.listen(Number(process.argv[2]), '127.0.0.1');
