// Uses MS milliseconds of CPU time on the event loop per request: cpu.js PORT MS.
const http = require("http");

const [port, ms] = process.argv.slice(2).map(Number);

http.createServer((request, response) => {
    const begin = process.cpuUsage();
    let used;
    do {
        used = process.cpuUsage(begin);
    } while (used.user + used.system < ms * 1000);
    response.end("ok\n");
}).listen(port, "127.0.0.1", 1024);
