// Responds after holding one of PERMITS permits for MS milliseconds: pool.js PORT PERMITS MS.
const http = require("http");

const [port, permits, ms] = process.argv.slice(2).map(Number);
let free = permits;
const waiting = [];

function acquire(task) {
    if (free > 0) {
        free--;
        task();
    } else {
        waiting.push(task);
    }
}

function release() {
    const next = waiting.shift();
    if (next) next();
    else free++;
}

http.createServer((request, response) => {
    acquire(() => setTimeout(() => {
        response.end("ok\n");
        release();
    }, ms));
}).listen(port, "127.0.0.1", 1024);
