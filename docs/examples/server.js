// A minimal server in Node: node server.js PORT
require("http")
  .createServer((request, response) => response.end("Hello World!"))
  .listen(Number(process.argv[2]), "127.0.0.1");
